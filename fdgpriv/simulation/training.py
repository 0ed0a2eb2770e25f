"""Artifact kind: the model, or the model update, that a client shares after local training."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from zlib import crc32

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import STATISTICS, ModelState, ModelUpdate, TensorState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod, PlainTraining
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.transcript import Transcript
from fdgpriv.models.copied import copied
from fdgpriv.models.cpu_io import with_cpu_io
from fdgpriv.models.memory_format import channels_last
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.relays import reaches_all, receiver_of, relayed_to
from fdgpriv.simulation.simulator import ClientImages, ClientSample, DefendedSimulator, InRound, Simulator
from fdgpriv.threat import Capability
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator

_CACHED = 2**26  # bytes of trained models of all rounds, in memory or on disk


@dataclass(frozen=True, eq=False)
class _Training:
    """A trained model, its training images, and the generator's state (5056,) after the training."""

    party: ClientImages
    model: ModelState
    after: Tensor


@dataclass(frozen=True, eq=False)
class TrainingSimulator(DefendedSimulator):
    """Local training on cross-entropy with the method's own optimiser, batches, epochs and augmentation.

    It leaves out further terms of a method's client loss.

    Attributes:
        kind: The kind of the artifacts: model_state or model_update.
        method, federation, defense: As trained.
        client_template: One client's data, for its augmentation.
        round: The round of the artifacts, from 0.
        first: Simulates artifacts of the first recorded round, if that is another round and all clients received one model.
        trainings: Trained models, in one cache for the simulators of all rounds; None for a cache of its own.
    """

    kind: str
    method: FederatedMethod
    federation: Federation
    defense: Defense
    client_template: ClientData
    round: int
    first: InRound | None = None
    trainings: "Cache[_Training] | None" = None

    @property
    def plain(self) -> PlainTraining:
        """The clients' training on cross-entropy."""
        training = self.method.disclosure().training
        assert training is not None
        return training

    def network(self) -> nn.Module:
        """A new copy of the initial network, which takes images from the CPU and returns its output there."""
        return with_cpu_io(copied(self._network))

    @cached_property
    def _network(self) -> nn.Module:
        model = self.method.model(self.federation, generator(self.federation.seed, 4)).to(self.federation.device)
        return channels_last(model)

    @cached_property
    def last_layer(self) -> tuple[str, ...]:
        """Names of the parameters of the classification layer: its weight, and its bias if it has one."""
        linear = {
            name: module
            for name, module in self._network.named_modules()
            if isinstance(module, nn.Linear) and module.out_features == self.federation.classes
        }
        name = ([name for name in linear if name.startswith("head")] or list(linear))[-1]
        return tuple(f"{name}.{part}" for part, _ in linear[name].named_parameters())

    @cached_property
    def _trainings(self) -> "Cache[_Training]":
        return cache_of_trainings(self._network.state_dict()) if self.trainings is None else self.trainings

    def trained_once(self, sample: ClientSample, rng: torch.Generator) -> ModelState:
        """As `trained`, cached by images and the generator's state; importances are computed from the same models."""
        party, index = sample.party, tuple(sample.index.tolist())
        training = self._trainings.get(
            (self.round, id(party.images), id(party.received_model), index, bytes(rng.get_state().numpy())),
            lambda: _Training(party, self.trained(sample, rng).in_file(), rng.get_state()),
        )
        rng.set_state(training.after)
        return training.model

    def trained(self, sample: ClientSample, rng: torch.Generator) -> ModelState:
        """The undefended model that a client with these images trains from the one it received."""
        model = copied(self._network)
        client_rng = generator(self.federation.seed, 17, crc32(bytes(rng.get_state().numpy())))
        for module in model.modules():
            if isinstance(getattr(module, "rng", None), torch.Generator):  # dropout: each client draws its own
                module.rng = client_rng  # type: ignore[assignment]
        sample.received_model.load_into(model)
        self.plain.train_plainly(model, self._data(sample), self.round, rng)
        return ModelState.of(model, SERVER, self.round)

    def batches(self, sample: ClientSample, rng: torch.Generator) -> list[tuple[Tensor, Tensor]]:
        """The augmented batches, one for each step of `trained`: images (B, 3, H, W) and labels (B,)."""
        return list(self.plain.plain_batches(self._data(sample), rng))

    def _data(self, sample: ClientSample) -> ClientData:
        return replace(self.client_template, client=SERVER, pixels=sample.images, labels=sample.labels)

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        return [self.form(self.trained_once(sample, rng), sample.received_model)]

    def form(self, trained: ModelState, received_model: ModelState) -> TensorState:
        """The artifact of a trained model: the tensors that the received model has, or their change."""
        shared = replace(trained, state={name: trained.state[name] for name in received_model.state})
        return ModelUpdate.between(received_model, shared) if self.kind == ModelUpdate.kind else shared

    def after(self, artifact: Artifact, received_model: ModelState) -> ModelState:
        """The client's model after training."""
        if isinstance(artifact, ModelUpdate):
            state = {name: tensor - artifact.state[name] for name, tensor in received_model.state.items()}
            return ModelState(client=artifact.client, round=artifact.round, state=state)
        assert isinstance(artifact, ModelState)
        return artifact

    def model_of(self, artifact: Artifact, received_model: ModelState | None) -> nn.Module:
        assert received_model is not None
        network = self.network()
        self.after(artifact, received_model).load_into(network)
        return network

    def change(self, artifact: Artifact, received_model: ModelState) -> dict[str, Tensor]:
        """Received minus trained tensors, by name, counters included."""
        trained = self.after(artifact, received_model).state
        return {name: received_model.state[name].float() - tensor.float() for name, tensor in trained.items()}

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """Changes of the BatchNorm statistics and of the last layer, concatenated.

        Without BatchNorm, the direction of the first layer's change replaces the statistics: it depends most on the images'
        look.
        """
        assert received_model is not None
        change = self.change(artifact, received_model)
        statistics = sorted(name for name in change if name.endswith(STATISTICS[:2]))
        if statistics:
            return torch.cat([change[name].flatten() for name in (*statistics, *self.last_layer)])
        shared = [name for name, _ in self._network.named_parameters() if name in change]
        names = dict.fromkeys((shared[0], *self.last_layer)) if shared[0] not in self.last_layer else self.last_layer
        return torch.cat([nn.functional.normalize(change[name].flatten(), dim=0) for name in names])

    def to_vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        assert received_model is not None
        change = self.change(artifact, received_model)
        return torch.cat([tensor.flatten() for tensor in change.values()])

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        assert received_model is not None
        trained = self.moved(row, received_model)
        return trained if self.kind == ModelState.kind else ModelUpdate.between(received_model, trained)

    def in_first_round(self) -> InRound | None:
        return self.first

    def moved(self, row: Tensor, received_model: ModelState) -> ModelState:
        """The received model minus a vector of changes (F,)."""
        state, start = {}, 0
        for name, tensor in received_model.state.items():
            change = row[start : start + tensor.numel()].view_as(tensor)
            start += tensor.numel()
            state[name] = tensor - (change if tensor.is_floating_point() else change.round().to(tensor.dtype))
            if name.endswith("running_var"):
                state[name].clamp_min_(1e-5)
        return ModelState(client=SERVER, round=self.round, state=state)


def cache_of_trainings(state: Mapping[str, Tensor]) -> "Cache[_Training]":
    """A cache of trained models with tensors like these, of `_CACHED` bytes."""
    model_bytes = sum(tensor.nbytes for tensor in state.values())
    return Cache(max_entries=max(2, _CACHED // max(1, model_bytes)))


def training_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """Models or updates of the last round for which these and the received models are recorded."""
    transcript = run.transcript
    if run.method.disclosure().training is None:
        return None
    uploads, start = _uploads(transcript, small=False), _Start(run)
    models = {round: start.of(transcript.models_sent(round), uploads[round], round) for round in uploads}
    rounds = sorted(round for round, by_client in uploads.items() if by_client.keys() <= models[round].keys())
    if not rounds:
        return None
    last, first = rounds[-1], rounds[0]
    wire, kind = uploads[last], next(iter(uploads[last].values())).kind
    parts = run.method, run.federation, run.defense, run.client_template
    trainings = cache_of_trainings(next(iter(models[last].values())).state)
    simulator = TrainingSimulator(kind, *parts, last, trainings=trainings)
    started = list({id(model): model for model in models[first].values()}.values())
    if first != last and len(started) == 1:
        simulator = replace(simulator, first=InRound(replace(simulator, round=first), started[0]))
    receivers = relayed_to(transcript, kind)
    sent = set.intersection(*(set(model.state) for model in transcript.models_sent(last).values()))
    not_sent = set(next(iter(wire.values())).tensors()) - sent
    return ArtifactSeries(
        simulator=simulator,
        level="client",
        wire=wire,
        clients=tuple(wire),
        received_model=run.received_models(models[last]),
        receiver=receiver_of(receivers, list(wire)),
        receivers={name: frozenset(clients) for name, clients in receivers.items()},
        reaches_all=reaches_all(transcript, kind),
        number=last,
        history=tuple(
            EarlierRound(round, replace(simulator, round=round), uploads[round], run.received_models(models[round]))
            if round in rounds
            else small
            for round, small in _small_rounds(run, simulator, start, last)
        ),
        earlier=uploads[first] if first != last else {},
        needs=frozenset(() if receivers else {Capability.HAS_UPDATES}),
        expensive=True,
        trained=True,
        kept=bool(not_sent) and not not_sent.isdisjoint(simulator.last_layer),
    )


def _uploads(transcript: Transcript, small: bool) -> dict[int, dict[str, Artifact]]:
    """By round and client, the stored models or updates; if `small`, also those with only small tensors."""
    uploads: dict[int, dict[str, Artifact]] = {}
    for kind in (ModelState.kind, ModelUpdate.kind):
        for record, artifact in transcript.of_kind(kind, small):
            if record.receiver == SERVER and artifact is not None:
                uploads.setdefault(record.round, {})[record.origin] = artifact
    return uploads


def _small_rounds(
    run: RecordedRun, simulator: TrainingSimulator, start: "_Start", last: int
) -> list[tuple[int, EarlierRound]]:
    """All rounds before the last one in which clients shared, with the small tensors of uploads and received models."""
    small = []
    for round, wire in sorted(start.shared.items()):
        models = start.of(run.transcript.models_sent(round, small=True), wire, round)
        if round < last and wire.keys() <= models.keys():
            received = run.received_models(models)
            small.append((round, EarlierRound(round, replace(simulator, round=round), wire, received, whole=False)))
    return small


class _Start:
    """The models from which clients trained: the tensors that they were sent, and their last shared values of all others.

    Attributes:
        shared: As of `_uploads`, including those with only small tensors.
    """

    def __init__(self, run: RecordedRun) -> None:
        self.run, self.shared = run, _uploads(run.transcript, small=True)

    def of(self, sent: Mapping[str, ModelState], wire: Mapping[str, Artifact], round: int) -> dict[str, ModelState]:
        """By client, the model from which it trained in this round; the same object for equal models.

        Tensors that a client was not sent have its last shared values, or those of the initial network.

        Args:
            sent: By client, the tensors that it was sent in this round.
            wire: By client, its artifact of this round.
            round: The round.
        """
        started: dict[str, ModelState] = {}
        models: dict[tuple[int, int], ModelState] = {}
        for client, model in sent.items():
            names = wire[client].tensors() if client in wire else model.state
            if names.keys() <= model.state.keys():
                started[client] = model
                continue
            earlier = [
                by_client[client] for r, by_client in sorted(self.shared.items()) if r < round and client in by_client
            ]
            key = (id(model), id(earlier[-1]) if earlier else 0)
            if key not in models:
                state = (earlier[-1].tensors() if earlier else self._initial) | model.state
                models[key] = replace(model, state={name: state[name] for name in names if name in state})
            started[client] = models[key]
        return started

    @cached_property
    def _initial(self) -> dict[str, Tensor]:
        run = self.run
        return ModelState.of(run.method.model(run.federation, generator(run.federation.seed, 4)), SERVER, 0).state
