"""Artifact kind: importance weights of a model's parameters, together with the model (LSI's stage 5)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ImportanceWeights, ModelState
from fdgpriv.defense import Defense
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, DefendedSimulator, InRound, Simulator
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.threat import Capability

_MIN_IMPORTANCE = 1e-8  # importances below this count as equal
_MODEL = "model/"  # prefix of the names of the model's tensors


@dataclass(frozen=True, eq=False)
class ImportanceSimulator(DefendedSimulator):
    """The importance weights that a client computes from its training images with the model it trained.

    They are sent together with that model: an artifact of this series contains both, the model's tensors under
    ``model/NAME``. The model is that of the method's plain client (see `TrainingSimulator`), and
    `Observation.received_model` is the model from which it was trained. Properties are inferred from the importances only;
    `last_layer_gradients` needs the client's model. If clients scale their models (``normaliser=clients``), the received
    model is used instead.

    Attributes:
        training: Simulates the models.
        defense: The run's defense.
        includes_model: Whether the model is sent with its importances.
    """

    training: TrainingSimulator
    defense: Defense
    includes_model: bool

    kind = ImportanceWeights.kind

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        trained = self.training.trained_once(sample, rng)
        state = self._method.importances(self._loaded(trained), sample.images)
        return [ImportanceWeights(client=SERVER, round=self.training.round, state=state), trained]

    def read(self, shared: Message, sample: ClientSample) -> Artifact:
        """The importances with the model that was sent with them."""
        importances, model = shared
        received = sample.received_model.state
        received_tensors = {name: tensor for name, tensor in model.tensors().items() if name in received}
        return with_model(importances, received_tensors if self.includes_model else {})

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """The last layer's importances in units of their mean, and the logarithm of each parameter's mean importance."""
        importances, last = self._importances(artifact), self.last(artifact)
        means = torch.stack([tensor.abs().mean() for tensor in importances.values()])
        return torch.cat([last / (last.abs().mean() + _MIN_IMPORTANCE), (means + _MIN_IMPORTANCE).log()])

    def last(self, artifact: Artifact) -> Tensor:
        """(D,): the importances of the last layer, in the order of `last_layer_gradients`."""
        importances = self._importances(artifact)
        return torch.cat([importances[name].flatten() for name in self.training.last_layer])

    def last_layer_gradients(
        self, images: Tensor, artifact: Artifact, received_model: ModelState, like: Tensor
    ) -> Tensor:
        """(N, D): per-image gradients, from which the last layer's importances are computed.

        Args:
            images: (N, 3, H, W).
            artifact: The importances with the model that was sent.
            received_model: The model from which the client trained.
            like: Images (M, 3, H, W) similar to the client's, for recomputing BatchNorm statistics.
        """
        gradients: Tensor = self._method.last_layer_gradients(self.model_of(artifact, received_model), images, like)
        return gradients

    def model_of(self, artifact: Artifact, received_model: ModelState | None) -> nn.Module:
        """The network of the importances: the model that was sent with them, or else the received one."""
        assert received_model is not None
        tensors = {n.removeprefix(_MODEL): t for n, t in artifact.tensors().items() if n.startswith(_MODEL)}
        state = received_model.state | tensors
        return self._loaded(ModelState(client=SERVER, round=received_model.round, state=state))

    @property
    def fresh_statistics(self) -> bool:
        """Whether the gradients depend on BatchNorm statistics of the client's images (`like`)."""
        return bool(self._method.fresh_importances)

    def pooled(self, gradients: Tensor) -> Tensor:
        """(..., D): the importances of a client whose images have these gradients (..., n, D)."""
        importances: Tensor = self._method.pooled(gradients)
        return importances

    def _importances(self, artifact: Artifact) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in artifact.tensors().items() if not name.startswith(_MODEL)}

    @property
    def batch(self) -> int:
        """Number of images whose gradients are summed before taking the absolute value."""
        return int(self._method.importance_batch)

    def to_vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """Square roots of the importances, and received minus trained model."""
        assert received_model is not None
        importances = self._importances(artifact)
        roots = [tensor.sign() * tensor.abs().sqrt() for tensor in importances.values()]
        model = [
            received_model.state[name.removeprefix(_MODEL)].float() - tensor.float()
            for name, tensor in artifact.tensors().items()
            if name not in importances
        ]
        return torch.cat([tensor.flatten() for tensor in (*roots, *model)])

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        assert received_model is not None
        importances, begin = {}, 0
        for name, parameter in self._network.named_parameters():
            root = row[begin : begin + parameter.numel()].view(parameter.shape)
            importances[name] = root * root.abs() if self._method.importance_sign == "signed" else root.square()
            begin += parameter.numel()
        weights = ImportanceWeights(client=SERVER, round=self.training.round, state=importances)
        return with_model(
            weights, self.training.moved(row[begin:], received_model).state if self.includes_model else {}
        )

    def in_first_round(self) -> InRound | None:
        first = self.training.first
        if first is None or not isinstance(first.simulator, TrainingSimulator):
            return None
        return InRound(replace(self, training=first.simulator), first.received_model)

    @cached_property
    def _network(self) -> nn.Module:
        return self.training.network()

    @property
    def _method(self) -> Any:
        """The method, which defines how importances are computed."""
        return self.training.method

    def _loaded(self, model: ModelState) -> nn.Module:
        """A network with this state."""
        network = self.training.network()
        model.load_into(network)
        return network


def with_model(importances: Artifact, model: Mapping[str, Tensor]) -> ImportanceWeights:
    """The artifact of a client that shared these importances with a model of these tensors."""
    state = importances.tensors() | {_MODEL + name: tensor for name, tensor in model.items()}
    return ImportanceWeights(client=importances.client, round=importances.round, state=state)


def importance_series(run: RecordedRun, trained: ArtifactSeries[Simulator] | None) -> ArtifactSeries[Simulator] | None:
    """The importances of the last round for which these and the received models are recorded.

    Args:
        run: The recorded run.
        trained: The series of the run's models; None if no models are recorded.
    """
    if trained is None or not isinstance(trained.simulator, TrainingSimulator):
        return None
    shared: dict[int, dict[str, Artifact]] = {}
    verbs = set()
    transcript = run.transcript
    for record, artifact in transcript.of_kind(ImportanceWeights.kind):
        if record.receiver == SERVER and artifact is not None:
            shared.setdefault(record.round, {})[record.origin] = artifact
            verbs.add(record.verb)
    includes_model = any(r.verb in verbs for r, _ in transcript.of_kind(ModelState.kind) if r.receiver == SERVER)

    def recorded(models: Mapping[str, Artifact]) -> dict[str, Artifact]:
        importances = {name: shared.get(model.round, {}).get(name) for name, model in models.items()}
        return {
            name: with_model(weights, models[name].tensors() if includes_model else {})
            for name, weights in importances.items()
            if weights is not None
        }

    wire = recorded(trained.wire)
    if not wire:
        return None
    simulator = ImportanceSimulator(trained.simulator, trained.simulator.defense, includes_model)
    return ArtifactSeries(
        simulator=simulator,
        level="client",
        wire=wire,
        clients=tuple(wire),
        received_model=trained.received_model,
        number=trained.number,
        history=tuple(
            EarlierRound(
                earlier.number,
                replace(simulator, training=earlier.simulator),
                recorded(earlier.wire),
                earlier.received_model,
            )
            for earlier in trained.history
            if earlier.whole and isinstance(earlier.simulator, TrainingSimulator) and recorded(earlier.wire)
        ),
        earlier=recorded(trained.earlier),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        expensive=True,
        trained=True,
    )
