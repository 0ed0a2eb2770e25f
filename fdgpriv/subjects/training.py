"""What a client's training sends, as a subject: its model, or how its model changed."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, STATISTICS, Artifact, ModelState, TensorState
from fdgpriv.federation import Federation, LocalData, generator
from fdgpriv.once import Once
from fdgpriv.partition import Population
from fdgpriv.roles import Defense, Method
from fdgpriv.states import ModelUpdate
from fdgpriv.threat import Capability
from fdgpriv.transcript import Transcript

from .subject import Craft, Holding, Subject, like_any

_REMEMBERED = 2**29  # bytes of trained models


@dataclass(frozen=True, eq=False)
class _Training:
    """A model that was trained: of what, and the state (5056,) of the generator after it."""

    held: Holding
    model: ModelState
    after: Tensor


@dataclass(frozen=True, eq=False)
class TrainingCraft(Craft):
    """Local training on cross-entropy with the method's own optimiser, batches, epochs and augmentation.

    What else a method adds to its clients' loss is left out: the artifacts of few images that are made here are those
    of its plain client.

    Attributes:
        kind: Of what is sent: model_state or model_update.
        method, federation, defense: As trained.
        like: One client's data, for its augmentation.
        round: Of the artifacts, from 0.
    """

    kind: str
    method: Method
    federation: Federation
    defense: Defense
    like: LocalData
    round: int

    def network(self) -> nn.Module:
        """The network whose states these are, as it starts; another one each time."""
        return deepcopy(self._network)

    @cached_property
    def _network(self) -> nn.Module:
        model = self.method.model(self.federation, generator(self.federation.seed, 4)).to(self.federation.device)
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]  # a quarter faster

    @cached_property
    def last_layer(self) -> tuple[str, ...]:
        """Names of the parameters of the linear layer that tells classes apart: its weight, and its bias if it has one."""
        linear = {
            name: module
            for name, module in self._network.named_modules()
            if isinstance(module, nn.Linear) and module.out_features == self.federation.classes
        }
        name = ([name for name in linear if name.startswith("head")] or list(linear))[-1]
        return tuple(f"{name}.{part}" for part, _ in linear[name].named_parameters())

    @cached_property
    def _known(self) -> Once[_Training]:
        each = sum(tensor.nbytes for tensor in self._network.state_dict().values())
        return Once(most=max(2, _REMEMBERED // max(1, each)))

    def trained_once(self, held: Holding, index: Tensor, rng: torch.Generator) -> ModelState:
        """As `trained`, remembering what was trained of the same images with the same draws: importances are of it too."""
        key = (id(held.images), id(held.sent), tuple(index.tolist()), bytes(rng.get_state().numpy()))
        found = self._known.get(key, lambda: _Training(held, self.trained(held, index, rng), rng.get_state()))
        rng.set_state(found.after)
        return found.model

    def trained(self, held: Holding, index: Tensor, rng: torch.Generator) -> ModelState:
        """The model that a client with the images at `index` (m,) trains of the one it was sent, undefended."""
        assert held.sent is not None
        model = self.network()
        held.sent.load_into(model)
        self.method.train_plainly(model, self._data(held, index), self.round, rng, self.federation.device)
        return ModelState.of(model, SERVER, self.round)

    def batches(self, held: Holding, index: Tensor, rng: torch.Generator) -> list[tuple[Tensor, Tensor]]:
        """The batches, augmented, of which `trained` makes a step each: images (B, 3, H, W) and labels (B,)."""
        return list(self.method.plain_batches(self._data(held, index), rng))

    def _data(self, held: Holding, index: Tensor) -> LocalData:
        return replace(self.like, client=SERVER, images=held.images[index], labels=held.labels[index])

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        assert held.sent is not None
        made = self.form(self.trained_once(held, index, rng), held.sent)
        return self.defense.protect(made, rng) if defended else made

    def form(self, trained: ModelState, sent: ModelState) -> TensorState:
        """What a client sends of the model it trained: no more than the names it was sent, or how they changed."""
        kept = replace(trained, state={name: trained.state[name] for name in sent.state})
        return ModelUpdate.between(sent, kept) if self.kind == ModelUpdate.kind else kept

    def after(self, artifact: Artifact, sent: ModelState) -> ModelState:
        """The model that the client ended with."""
        if isinstance(artifact, ModelUpdate):
            state = {name: tensor - artifact.state[name] for name, tensor in sent.state.items()}
            return ModelState(client=artifact.client, round=artifact.round, state=state)
        assert isinstance(artifact, ModelState)
        return artifact

    def change(self, artifact: Artifact, sent: ModelState) -> dict[str, Tensor]:
        """What training took away from the model that was sent, by name: sent minus trained, counters too."""
        after = self.after(artifact, sent).state
        return {name: sent.state[name].float() - tensor.float() for name, tensor in after.items()}

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """Changes of the BatchNorm statistics and of the last layer, in one row."""
        assert sent is not None
        change = self.change(artifact, sent)
        statistics = sorted(name for name in change if name.endswith(STATISTICS[:2]))
        return torch.cat([change[name].flatten() for name in (*statistics, *self.last_layer)])

    def flat(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        assert sent is not None
        change = self.change(artifact, sent)
        return torch.cat([tensor.flatten() for tensor in change.values()])

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        assert sent is not None
        after = self.moved(row, sent)
        return after if self.kind == ModelState.kind else ModelUpdate.between(sent, after)

    def moved(self, row: Tensor, sent: ModelState) -> ModelState:
        """The model that this row of changes (F,) makes of the one that was sent."""
        state, start = {}, 0
        for name, tensor in sent.state.items():
            change = row[start : start + tensor.numel()].view_as(tensor)
            start += tensor.numel()
            state[name] = tensor - (change if tensor.is_floating_point() else change.round().to(tensor.dtype))
            if name.endswith("running_var"):
                state[name].clamp_min_(1e-5)
        return ModelState(client=SERVER, round=self.round, state=state)


def training_subject(
    transcript: Transcript, method: Method, federation: Federation, defense: Defense, population: Population
) -> Subject[Craft] | None:
    """Models or updates that clients sent in the last round of which they are kept with the models they began with."""
    if not method.trains_plainly:
        return None
    uploads: dict[int, dict[str, Artifact]] = {}
    for kind in (ModelState.kind, ModelUpdate.kind):
        for record, artifact in transcript.of_kind(kind):
            if record.receiver == SERVER and artifact is not None:
                uploads.setdefault(record.round, {})[record.origin] = artifact
    rounds = [round for round, by_client in uploads.items() if by_client.keys() <= transcript.models_sent(round).keys()]
    if not rounds:
        return None
    last, first = max(rounds), min(rounds)
    wire, sent = uploads[last], transcript.models_sent(last)
    empty = like_any(population.clients)
    kind = next(iter(wire.values())).kind
    return Subject(
        craft=TrainingCraft(kind, method, federation, defense, empty, last),
        level="client",
        wire=wire,
        clients=tuple(wire),
        sent=for_everybody(sent, population),
        earlier=uploads[first] if first != last else {},
        needs=frozenset({Capability.HAS_UPDATES}),
        costly=True,
    )


def for_everybody(sent: Mapping[str, ModelState], population: Population) -> dict[str, ModelState]:
    """The model that each client was sent; a shadow stands where a client of its domain does; none where none is kept."""
    if not sent:
        return {}
    domain = {name: population.main_domain(name) for name in population.domain_of}
    stand_in = {domain[name]: model for name, model in sent.items()}
    anybody = next(iter(sent.values()))
    return {name: sent.get(name) or stand_in.get(domain[name], anybody) for name in domain}
