"""Importances of a model's parameters, with the model they were taken under, as a subject (LSI's stage 5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, Artifact, ModelState
from fdgpriv.states import ImportanceWeights
from fdgpriv.threat import Capability
from fdgpriv.transcript import Transcript

from .subject import Craft, Holding, Subject
from .training import TrainingCraft

_LEAST = 1e-8  # importances that are no larger are alike
_MODEL = "model/"  # what stands before the names of the model's tensors


@dataclass(frozen=True, eq=False)
class ImportanceCraft(Craft):
    """The importances that a client takes under the model it trained, of the images it trained on.

    They cross beside that model, and who sees one sees the other: an artifact here holds both, the model's tensors under
    ``model/NAME``. The model is the method's plain client's (see `TrainingCraft`), and what a question calls sent is the
    model it was trained of. Properties are read from the importances alone; what images say under the very model that
    the client ended with, `singles`, needs it. Where clients divide (``normaliser=clients``), the model crosses scaled, and
    the one that was sent stands in.

    Attributes:
        training: Of the models.
        beside: Whether the model crosses beside its importances.
    """

    training: TrainingCraft
    beside: bool

    kind = ImportanceWeights.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        craft = self.training
        trained = craft.trained_once(held, index, rng)
        device = craft.federation.device
        state = self._method.importances(self._under(trained), held.images[index], device)
        shared: list[Artifact] = [ImportanceWeights(client=SERVER, round=craft.round, state=state), trained]
        importances, model = (craft.defense.protect(one, rng) if defended else one for one in shared)
        assert held.sent is not None
        kept = {name: tensor for name, tensor in model.tensors().items() if name in held.sent.state}
        return together(importances, kept if self.beside else {})

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """The last layer's importances in units of their mean, and the logarithm of each parameter's mean importance."""
        own, last = self._importances(artifact), self.last(artifact)
        means = torch.stack([tensor.abs().mean() for tensor in own.values()])
        return torch.cat([last / (last.abs().mean() + _LEAST), (means + _LEAST).log()])

    def last(self, artifact: Artifact) -> Tensor:
        """(D,): the importances of the last layer, in the order of `slopes`."""
        own = self._importances(artifact)
        return torch.cat([own[name].flatten() for name in self.training.last_layer])

    def slopes(self, images: Tensor, artifact: Artifact, sent: ModelState, like: Tensor) -> Tensor:
        """(N, D): what the last layer's importances are made of, one row for each image.

        Args:
            images: (N, 3, H, W).
            artifact: With the model that crossed beside the importances.
            sent: The model that the client began with.
            like: Images (M, 3, H, W) that stand for the client's: fresh BatchNorm statistics are taken of these.
        """
        tensors = {n.removeprefix(_MODEL): t for n, t in artifact.tensors().items() if n.startswith(_MODEL)}
        model = ModelState(client=SERVER, round=sent.round, state=sent.state | tensors)
        found: Tensor = self._method.slopes(self._under(model), images, like, self.training.federation.device)
        return found

    def pooled(self, slopes: Tensor) -> Tensor:
        """(..., D): the importances of a client whose images have the slopes (..., n, D)."""
        found: Tensor = self._method.pooled(slopes)
        return found

    def _importances(self, artifact: Artifact) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in artifact.tensors().items() if not name.startswith(_MODEL)}

    @property
    def batch(self) -> int:
        """Slopes of so many images are summed before their sign is dropped."""
        return int(self._method.importance_batch)

    def flat(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """Roots of the importances, and what training took away from the model that was sent."""
        assert sent is not None
        own = self._importances(artifact)
        roots = [tensor.sign() * tensor.abs().sqrt() for tensor in own.values()]
        model = [
            sent.state[name.removeprefix(_MODEL)].float() - tensor.float()
            for name, tensor in artifact.tensors().items()
            if name not in own
        ]
        return torch.cat([tensor.flatten() for tensor in (*roots, *model)])

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        assert sent is not None
        importances, begin = {}, 0
        for name, parameter in self._network.named_parameters():
            root = row[begin : begin + parameter.numel()].view(parameter.shape)
            importances[name] = root * root.abs() if self._method.importance_sign == "signed" else root.square()
            begin += parameter.numel()
        made = ImportanceWeights(client=SERVER, round=self.training.round, state=importances)
        return together(made, self.training.moved(row[begin:], sent).state if self.beside else {})

    @cached_property
    def _network(self) -> nn.Module:
        return self.training.network()

    @property
    def _method(self) -> Any:
        """The method, which says how importances are taken."""
        return self.training.method

    def _under(self, model: ModelState) -> nn.Module:
        network = self.training.network()
        model.load_into(network)
        return network


def together(importances: Artifact, model: Mapping[str, Tensor]) -> ImportanceWeights:
    """What is seen of a client that shared these importances beside a model of these tensors."""
    state = importances.tensors() | {_MODEL + name: tensor for name, tensor in model.items()}
    return ImportanceWeights(client=importances.client, round=importances.round, state=state)


def importance_subject(transcript: Transcript, trained: Subject[Craft] | None) -> Subject[Craft] | None:
    """The importances that clients shared in the last round in which they are kept with the models they began with.

    Args:
        transcript: As recorded.
        trained: The models that they shared in the same run, where any are kept.
    """
    if trained is None or not isinstance(trained.craft, TrainingCraft):
        return None
    shared: dict[int, dict[str, Artifact]] = {}
    verbs = set()
    for record, artifact in transcript.of_kind(ImportanceWeights.kind):
        if record.receiver == SERVER and artifact is not None:
            shared.setdefault(record.round, {})[record.origin] = artifact
            verbs.add(record.verb)
    beside = any(r.verb in verbs for r, _ in transcript.of_kind(ModelState.kind) if r.receiver == SERVER)

    def seen(models: Mapping[str, Artifact]) -> dict[str, Artifact]:
        own = {name: shared.get(model.round, {}).get(name) for name, model in models.items()}
        return {
            name: together(found, models[name].tensors() if beside else {})
            for name, found in own.items()
            if found is not None
        }

    wire = seen(trained.wire)
    if not wire:
        return None
    return Subject(
        craft=ImportanceCraft(trained.craft, beside),
        level="client",
        wire=wire,
        clients=tuple(wire),
        sent=trained.sent,
        earlier=seen(trained.earlier),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        costly=True,
    )
