"""Rounds of federated averaging, with optional selection of the best model by validation accuracy."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import ValidationMetrics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_training import PLAIN
from fdgpriv.federation.request import Answers, Request, Server
from fdgpriv.federation.state import Resumable
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.models.backbone import Classifier
from fdgpriv.results.utility import logits
from fdgpriv.utils.global_rng import draw_seed, seeds_drawn
from fdgpriv.utils.seeds import generator

from . import _expected_answers
from ._federation import Batch, load_average, model_state, shared_state, train
from ._weights import WeightedSGD

Selection = Literal["last", "validation"]
ClientOptimizer = Literal["adam", "sgd"]
MOST_IDLE = 4  # networks that no client uses; as many as clients of an audit train at a time


@dataclass(frozen=True)
class FederatedAveraging(WeightedSGD):
    """Server loop of FedAvg and of methods that end in it.

    Attributes:
        selection: The server returns the ``last`` global model, or the one with the best mean accuracy on the clients'
            held-out images (``validation``). Clients then share the accuracy of each global model they receive, and
            the last global model is sent once more for validation. The last model is returned if all are withheld.
        optimizer: Of clients: ``sgd`` with `momentum`, or ``adam``.
    """

    uses_final: ClassVar[bool] = False  # whether clients are sent the final model once more, and keep it

    selection: Selection = "last"
    optimizer: ClientOptimizer = "sgd"

    def new_optimizer(self, model: nn.Module, round: int) -> torch.optim.Optimizer:
        if self.optimizer == "sgd":
            return super().new_optimizer(model, round)
        return torch.optim.Adam(model.parameters(), self.lr_at(round), weight_decay=self.weight_decay)

    def disclosure(self) -> Disclosure:
        common = super().disclosure()
        accuracies = (ValidationMetrics.kind,) if self.selection == "validation" else ()
        return replace(common, uploads=(*common.uploads, *accuracies))

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return self.local_training.network(Classifier(federation.backbone(rng), federation.classes, rng))

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        model = self.model(federation, rng)
        best, aggregation = _Best(), self.aggregation(federation)
        reduce = None if ModelState.kind in self.disclosure().individual else "mean"
        for round in federation.rounds(self.rounds, model=model, best=best, aggregation=aggregation):
            clients = federation.sample(self.participants, rng)
            state, wanted = shared_state(model, SERVER, round, self), self.expected_fit(model, round)
            messages = {client: [state, *aggregation.relayed(client)] for client in clients}
            evaluated = self._evaluated(model, round)
            answers = yield Request("fit", messages, reduce, number=round, evaluated=evaluated, wanted=wanted)
            best.update(evaluated or state, answers)
            aggregation.merge(model, answers, round)
            yield from aggregation.further(clients, round)
        if self.selection == "validation":
            state = shared_state(model, SERVER, self.rounds, self)
            clients = federation.sample(self.participants, rng)
            expected = [_expected_answers.accuracy(torch.float32)]
            message: dict[str, Message] = {client: [state] for client in clients}
            evaluated = self._evaluated(model, self.rounds)
            answers = yield Request("validate", message, reduce="mean", evaluated=evaluated, wanted=expected)
            best.update(evaluated or state, answers)
            for state in best.states:  # none where a defense withheld all accuracies: the last model stays
                state.load_into(model)
        if self.uses_final:
            state = shared_state(model, SERVER, self.rounds, self)
            messages = {client: [state, *aggregation.relayed(client)] for client in federation.clients}
            yield Request("use", messages, number=self.rounds, evaluated=self._evaluated(model, self.rounds), wanted=())
        return model

    def aggregation(self, federation: Federation) -> "Aggregation":
        """The server's side of a round: here the average of the clients' models."""
        return Aggregation(self)

    def _evaluated(self, model: nn.Module, round: int) -> ModelState | None:
        """The whole global model, where clients share tensors that the server does not send; else None."""
        is_sent = self.withheld(model, SERVER) <= self.withheld(model, "")
        return None if is_sent else ModelState.of(model, SERVER, round)

    def expected_fit(self, model: nn.Module, round: int) -> list[ExpectedArtifact]:
        """Expected artifacts in a client's answer to ``fit``; the model first."""
        unsent, unshared = self.withheld(model, SERVER), self.withheld(model, "")
        state = {
            name: torch.zeros_like(tensor) if name in unsent else tensor
            for name, tensor in model.state_dict().items()
            if name not in unshared
        }
        expected = [ExpectedArtifact(ModelState(client=SERVER, round=round, state=state)), *self.expected_count()]
        if self.selection == "validation" and round > 0:
            expected.append(_expected_answers.accuracy(torch.float32))
        return expected

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "AveragingClient":
        if self.selection == "last" and self.local_training is PLAIN and not self.uses_final:
            networks = _Networks.of(self, federation)
            if networks.are_lent:
                return BorrowingClient(self, federation, data, rng, networks)
        return AveragingClient(self, federation, data, rng)

    def loss(self, model: nn.Module, batch: Batch, rng: torch.Generator) -> Tensor:
        """A client's loss of one mini-batch: cross-entropy. Methods whose clients need nothing else override it."""
        return nn.functional.cross_entropy(model(batch.images), batch.labels)


class Aggregation(Resumable):
    """What the server makes of a round's answers, and what it keeps for that from round to round."""

    def __init__(self, method: FederatedAveraging) -> None:
        self.method = method

    def relayed(self, client: str) -> Message:
        """Artifacts of other clients that the server sends `client` beside the model; here none."""
        return []

    def merge(self, model: nn.Module, answers: Answers, round: int) -> None:
        """Updates the global model by the answers of a round."""
        load_average(model, list(model_state(answers).values()), self.method.weights_in(answers))

    def further(self, clients: Sequence[str], round: int) -> Generator[Request, Answers, None]:
        """Further requests of a round to its clients, once their models are merged; here none."""
        yield from ()


def received(message: Message) -> ModelState:
    """The global model in a message of the server."""
    (state,) = (artifact for artifact in message if isinstance(artifact, ModelState) and artifact.client == SERVER)
    return state


@dataclass
class _Best(Resumable):
    """The global model with the highest mean accuracy so far; of equal models, the earliest."""

    checkpointed: ClassVar[tuple[str, ...]] = ("accuracy", "states")

    accuracy: float = -1.0
    states: list[ModelState] = field(default_factory=list)

    def update(self, state: ModelState, answers: Mapping[str, Message]) -> None:
        """Stores `state` if the accuracies in the answers have a higher mean; answers without accuracies change nothing."""
        accuracies = [float(a.accuracy) for m in answers.values() for a in m if isinstance(a, ValidationMetrics)]
        if accuracies and (mean := sum(accuracies) / len(accuracies)) > self.accuracy:
            self.accuracy, self.states = mean, [state]


class AveragingClient(Resumable):
    """Answers ``fit`` with the model trained on local data, ``validate`` with its accuracy on held-out images, and ``use``."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model",)

    def __init__(
        self, method: FederatedAveraging, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.federation = federation
        self.model = method.model(federation, rng).to(self.device)
        if method.selection == "validation" and not len(data.held_out_labels):
            raise ValueError(
                f"{method.name()}.selection: want held-out images of every client to select by validation, "
                f"got none of {data.client}; use selection=last"
            )

    def fit(self, message: Message) -> Message:
        """The model after E local epochs, n_k for weighting, and the received model's accuracy for selection."""
        state = received(message)
        validation = self.validate(message) if self.method.selection == "validation" and state.round > 0 else []
        state.load_into(self.model)
        self._train(state.round)
        trained = shared_state(self.model, self.data.client, state.round, self.method)
        return [trained, *self.method.counted(self.data, state.round), *validation]

    def _train(self, round: int) -> None:
        """Trains the model for one round, by a new optimiser."""
        train(self.model, self.loss, self.data, self.method, round, self.rng)

    def use(self, message: Message) -> Message:
        """Keeps the final model, and shares nothing."""
        received(message).load_into(self.model)
        return []

    def validate(self, message: Message) -> Message:
        """Accuracy of the received model on the client's held-out images."""
        state = received(message)
        state.load_into(self.model)
        predicted = logits(self.model, self.data.held_out_pixels).argmax(1)
        accuracy = (predicted == self.data.held_out_labels).float().mean()
        return [ValidationMetrics(client=self.data.client, round=state.round, accuracy=accuracy)]

    def loss(self, batch: Batch) -> Tensor:
        """Loss of one mini-batch, by default the method's. Overridden where it depends on what the client holds."""
        return self.method.loss(self.model, batch, self.rng)


class StatefulClient(AveragingClient):
    """A client whose optimiser keeps its state, such as momentum, from one round that it trains in to the next.

    The state stays with the client. A client that has not trained, such as one that an adversary simulates, has none.
    """

    checkpointed: ClassVar[tuple[str, ...]] = ("model", "optimizer")

    def __init__(
        self, method: FederatedAveraging, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> None:
        super().__init__(method, federation, data, rng)
        self.optimizer: torch.optim.Optimizer | None = None

    def blank(self, name: str) -> object:
        return self.method.new_optimizer(self.model, 0) if name == "optimizer" else super().blank(name)

    def _train(self, round: int) -> None:
        if self.optimizer is None:
            self.optimizer = self.method.new_optimizer(self.model, round)
        train(self.model, self.loss, self.data, self.method, round, self.rng, self.optimizer)


class BorrowingClient(AveragingClient):
    """A client without a network, since a request brings the whole state: it borrows one to train.

    So neither memory nor the time to draw networks grows by a network for each client. The client's generator is advanced
    as if its network had been drawn from it.
    """

    checkpointed: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        method: FederatedAveraging,
        federation: Federation,
        data: ClientData,
        rng: torch.Generator,
        networks: "_Networks",
    ) -> None:
        self.method, self.federation, self.data, self.rng = method, federation, data, rng
        self.device, self.networks = federation.device, networks
        networks.draw(federation, rng)

    def fit(self, message: Message) -> Message:
        with self.networks.borrowed(self.federation) as self.model:
            answer = super().fit(message)
        del self.model
        return answer


class _Networks:
    """The networks that the clients of one federation borrow.

    Attributes:
        are_lent: Whether clients need none of their own: they keep no tensor between requests, and networks no generator.
        idle: Those that no client uses.
        seeds: How many seeds a network is drawn from; None if other numbers are drawn from its generator too.
    """

    _KNOWN: ClassVar[WeakKeyDictionary[Federation, dict[FederatedAveraging, "_Networks"]]] = WeakKeyDictionary()

    def __init__(self, method: FederatedAveraging, federation: Federation) -> None:
        self.method, rng = method, generator(0)
        network = self._built(federation, rng)
        withheld = method.withheld(network, SERVER) | method.withheld(network, "")
        draws = any(isinstance(getattr(module, "rng", None), torch.Generator) for module in network.modules())
        self.are_lent = not withheld and not draws
        self.idle = [network] if self.are_lent else []
        self.seeds = seeds_drawn(generator(0), rng)

    @classmethod
    def of(cls, method: FederatedAveraging, federation: Federation) -> "_Networks":
        """The same ones for all clients of a federation."""
        known = cls._KNOWN.setdefault(federation, {})
        return known.get(method) or known.setdefault(method, cls(method, federation))

    def draw(self, federation: Federation, rng: torch.Generator) -> None:
        """Advances `rng` as if a network had been drawn from it."""
        if self.seeds is None:
            self._built(federation, rng)
        for _ in range(self.seeds or 0):
            draw_seed(rng)

    @contextmanager
    def borrowed(self, federation: Federation) -> Iterator[nn.Module]:
        """A network in any state that no other client uses meanwhile."""
        try:
            network = self.idle.pop()
        except IndexError:
            network = self._built(federation, generator(0))
        yield network
        if len(self.idle) < MOST_IDLE:
            self.idle.append(network)

    def _built(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return self.method.model(federation, rng).to(federation.device)
