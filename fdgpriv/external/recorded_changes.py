"""Simulates clients of a recorded training from their images, and sets their changes of the model against the recorded ones."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Self

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.parameters import STATISTICS, ModelState, ModelUpdate
from fdgpriv.data.dataset import ClientData
from fdgpriv.external.recorded_method import Features, Network, Train
from fdgpriv.federation.transcript import Record, Transcript
from fdgpriv.utils.seeds import generator

MODELS = (ModelState.kind, ModelUpdate.kind)
_LARGEST_VECTOR = 2**18  # entries of a change that are compared; cosines over so many are exact to about 0.002
_WATCHED = 8  # batches whose values are compared with those of the images given
_MEAN, _VARIANCE, _COUNTER = STATISTICS


@dataclass(frozen=True, eq=False)
class ModelChange:
    """How a client's training changed its model: trained minus received.

    Attributes:
        parameters: (P,), a fixed sample of `_LARGEST_VECTOR` entries in large networks.
        length: Euclidean length of the change of all parameters.
        statistics: (F,), of the running means and variances of the first BatchNorm layer, which depend most on the images'
            values; empty without one.
        steps: The change of BatchNorm's counter of batches; None without one.
    """

    parameters: Tensor
    length: float
    statistics: Tensor
    steps: float | None

    @classmethod
    def of(cls, trained: Mapping[str, Tensor], received: Mapping[str, Tensor], parameters: Sequence[str]) -> Self:
        """The change between two states, over the named parameters and BatchNorm's statistics.

        Args:
            trained, received: States by name.
            parameters: Names of the network's parameters.
        """
        names = [name for name in parameters if name in trained and name in received]
        flat = torch.cat([(trained[name].float() - received[name].float()).flatten() for name in names])
        shared = [name for name in received if name in trained]
        first = next((name.rpartition(".")[0] for name in shared if name.rpartition(".")[2] == _MEAN), None)
        statistics = [
            (trained[name].float() - received[name].float()).flatten()
            for name in shared
            if first is not None and name in (f"{first}.{_MEAN}".lstrip("."), f"{first}.{_VARIANCE}".lstrip("."))
        ]
        counters = [name for name in shared if name.rpartition(".")[2] == _COUNTER]
        steps = [float(trained[name].double() - received[name].double()) for name in counters]
        return cls(
            _sampled(flat),
            float(flat.double().norm()),
            torch.cat(statistics) if statistics else torch.empty(0),
            max(steps, default=None),
        )


def _sampled(flat: Tensor) -> Tensor:
    """At most `_LARGEST_VECTOR` entries, the same of every vector of this length."""
    if len(flat) <= _LARGEST_VECTOR:
        return flat
    return flat[torch.randperm(len(flat), generator=generator(len(flat)))[:_LARGEST_VECTOR]]


@dataclass(frozen=True, eq=False)
class SharedModel:
    """The model that a client received in a round, and the one that it sent.

    Attributes:
        client, round: Who and when.
        received, sent: States by name, floating-point tensors as float32.
    """

    client: str
    round: int
    received: Mapping[str, Tensor]
    sent: Mapping[str, Tensor]

    @classmethod
    def of(cls, record: Record, upload: Artifact, received: ModelState) -> Self:
        """From a transfer of a model or an update to the server, and the model that the client received before."""
        start = {name: _as_float(tensor) for name, tensor in received.state.items()}
        shared = {name: _as_float(tensor) for name, tensor in upload.tensors().items()}
        if isinstance(upload, ModelUpdate):
            shared = {name: start[name] - tensor for name, tensor in shared.items() if name in start}
        return cls(record.sender, record.round, start, start | shared)


def _as_float(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def shared_models(transcript: Transcript, domain_of: Mapping[str, str]) -> list[SharedModel]:
    """The last model of each client whose received model is recorded too, one client of each domain after the other.

    Args:
        transcript: The recording.
        domain_of: By client, its domain.
    """
    latest: dict[str, tuple[Record, Artifact]] = {}
    for index, record in enumerate(transcript.records):
        if record.kind in MODELS and record.receiver == SERVER and record.round >= _round_of(latest, record.sender):
            latest[record.sender] = record, transcript.kept[index]
    received = {round: transcript.models_sent(round) for round in {record.round for record, _ in latest.values()}}
    place: dict[str, int] = {}
    counts: dict[str, int] = {}
    for client in latest:
        domain = domain_of.get(client, "")
        place[client] = counts[domain] = counts.get(domain, -1) + 1
    return [
        SharedModel.of(record, upload, received[record.round][client])
        for client in sorted(latest, key=lambda name: place[name])
        for record, upload in [latest[client]]
        if client in received[record.round]
    ]


def _round_of(latest: Mapping[str, tuple[Record, Artifact]], client: str) -> int:
    return latest[client][0].round if client in latest else -1


@dataclass(frozen=True, eq=False)
class ComparedClient:
    """A client's recorded change, and two simulated ones that differ in the random draws of the training.

    Attributes:
        client, round: Who and when.
        recorded, simulated, repeated: The changes.
    """

    client: str
    round: int
    recorded: ModelChange
    simulated: ModelChange
    repeated: ModelChange


@dataclass(frozen=True, eq=False)
class RecordedClientSimulator:
    """Trains models as the user's clients do.

    Attributes:
        train: The user's training.
        network: The network, with the conversion of images.
        clients: By name, the images.
    """

    train: Train
    network: Network
    clients: Mapping[str, ClientData]

    def change(
        self, shared: SharedModel, draw: int, adapt: Features | None = None, inputs: list[Tensor] | None = None
    ) -> ModelChange:
        """The change of what a client received of the model, by the user's training on the client's images.

        Args:
            shared: Of the client.
            draw: Seeds the training.
            adapt: Replaces the conversion of images, if given.
            inputs: Receives the batches that the network gets, at most `_WATCHED`.
        """
        network = self.network if adapt is None else self.network.adapted_by(adapt)
        model = network.new()
        model.load_state_dict(shared.received, strict=False)
        received = {name: tensor.clone() for name, tensor in model.state_dict().items() if name in shared.received}
        if inputs is not None:
            model.register_forward_pre_hook(lambda _, given: _keep_batch(inputs, given))
        network.train(self.train, model, self.clients[shared.client], shared.round, generator(draw))
        return ModelChange.of(model.state_dict(), received, _parameters(model))

    def recorded_change(self, shared: SharedModel) -> ModelChange:
        """The recorded change of a client's model."""
        return ModelChange.of(shared.sent, shared.received, _parameters(self.network.new()))

    def all_of(self, shared: Sequence[SharedModel], seconds: float) -> Iterator[ComparedClient]:
        """The clients in this order, until `seconds` are over; at least two."""
        end = perf_counter() + seconds
        for number, model in enumerate(shared):
            if number >= 2 and perf_counter() > end:
                return
            yield ComparedClient(
                model.client,
                model.round,
                self.recorded_change(model),
                self.change(model, 2 * number),
                self.change(model, 2 * number + 1),
            )


def _keep_batch(inputs: list[Tensor], given: tuple[object, ...]) -> None:
    if len(inputs) < _WATCHED and given and isinstance(given[0], Tensor) and given[0].ndim == 4:
        inputs.append(given[0].detach().float().cpu().clone())


def _parameters(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def cosine(one: Tensor, other: Tensor) -> float:
    """Cosine of two vectors; 0 if one is zero."""
    lengths = float(one.double().norm()) * float(other.double().norm())
    return float(one.double() @ other.double()) / lengths if lengths > 0 else 0.0


Pick = Callable[[ComparedClient], ModelChange]


def cosines(clients: Sequence[ComparedClient], of: Pick) -> Tensor:
    """Cosines (N, N) between the parameters' change `of` client i (row) and the simulated change of client j (column).

    NaN between clients whose rounds differ, as these received different models.
    """
    rows = _unit([of(client).parameters for client in clients])
    columns = _unit([client.simulated.parameters for client in clients])
    table = rows @ columns.T
    rounds = torch.tensor([client.round for client in clients])
    return table.masked_fill(rounds[:, None] != rounds, math.nan)


def _unit(vectors: Sequence[Tensor]) -> Tensor:
    """The vectors (N, P) in double precision, each divided by its length."""
    table = torch.empty(len(vectors), len(vectors[0]), dtype=torch.float64)
    for row, vector in zip(table, vectors, strict=True):
        row.copy_(vector)
    lengths: Tensor = table.norm(dim=1, keepdim=True)
    return table.div_(lengths.clamp_min(1e-30))
