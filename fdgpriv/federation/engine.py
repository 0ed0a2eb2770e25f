"""Drives a method's server generator: carries its requests over the wire to the clients, and their answers back."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import ClassVar

import torch
from torch import nn

from fdgpriv.artifacts.artifact import SERVER, Message, copied_message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.participant import stream
from fdgpriv.federation.request import Answers, Request, copied_request
from fdgpriv.federation.state import Resumable
from fdgpriv.federation.stored_loops import PassRepeated, StoredLoops
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.unfederated import UnsharedModels, participants_of
from fdgpriv.federation.wire import Wire
from fdgpriv.utils.arithmetic import fixed_arithmetic
from fdgpriv.utils.file_memory import LARGE
from fdgpriv.utils.memory import return_freed
from fdgpriv.utils.user_code import is_user_code

# Answers after which freed memory is returned, in 1 ms: what stays of an answer lies in gaps of what its training freed, so
# that the tensors of the next training do not fit there, and the heap would grow by the largest for each client.
_FREED_AFTER = 64

RoundCallback = Callable[[int, Mapping[str, ModelState]], None]
AnswerCallback = Callable[[str, int, int], None]


class Clients(ABC):
    """The clients of one training, as its engine reaches them.

    Attributes:
        state: The clients' state, in a form that a checkpoint stores and loads in place.
        resumable: Whether `state` is complete, so that a training can continue from it.
    """

    state: object
    resumable: bool

    @abstractmethod
    def send(self, request: Request, delivered: Mapping[str, Message]) -> Iterator[tuple[str, Message]]:
        """Sends each client its message at once; the iterator gives clients and their defended answers.

        Raises:
            ClientFailed: From the iterator: a client's code raised an exception, or the client is lost.
        """

    def models(self) -> dict[str, nn.Module]:
        """By client, its current model, for the evaluator; empty where the evaluator cannot see clients."""
        return {}

    def log(self) -> dict[str, float]:
        """The diagnostics of all clients together, for the evaluator; empty where the evaluator cannot see clients."""
        return {}


@dataclass
class Engine(Resumable, ABC):
    """Runs one federated training.

    Attributes:
        workers: Number of clients that run in parallel.
        on_round: Called for each round with its number r and, by client, the model sent to it, which was trained for r
            rounds; the same object for all clients if the model is global. For evaluation outside the federation.
        on_answer: Called after each answer with the verb, the number of answers so far, and the number of clients asked.
        checkpoints: Stores the training between rounds, and continues it; None for neither. Only trainings whose clients
            are `Resumable` and whose server asks within the loops of `Federation` are stored.
        observer: Further state to store in checkpoints.
        wire_s: Seconds spent so far in message exchange (checks, recording, delivery).
        log: Diagnostics for the evaluator, never sent: means over clients, or the minimum if a name ends in ``_min``, and
            the server's latest.
    """

    checkpointed: ClassVar[tuple[str, ...]] = ("wire_s", "log", "_latest")
    repeats_passes: ClassVar[bool] = False  # whether another training can run next to one, to check its checkpoints

    workers: int = 2
    on_round: RoundCallback | None = None
    on_answer: AnswerCallback | None = None
    checkpoints: Checkpoints | None = None
    observer: Resumable = field(default_factory=Resumable)
    wire_s: float = field(default=0.0, init=False)
    log: dict[str, float] = field(default_factory=dict, init=False)
    _latest: int = field(default=-1, init=False)  # the latest round passed to on_round
    _only_one: bool = field(default=False, init=False)  # pass of the server's loops
    _evaluation: Future[None] | None = field(default=None, init=False)  # on_round runs while clients continue to train

    @abstractmethod
    def clients(
        self,
        method: FederatedMethod,
        federation: Federation,
        data: Mapping[str, ClientData],
        wire: Wire,
        pool: ThreadPoolExecutor,
    ) -> AbstractContextManager[Clients]:
        """The clients of a training; arguments as of `run`, and `pool`, the threads of this process."""

    @fixed_arithmetic()
    def run(
        self, method: FederatedMethod, federation: Federation, data: Mapping[str, ClientData], wire: Wire
    ) -> nn.Module:
        """The global model that `method` trains.

        Args:
            method: Provides server and clients.
            federation: The public facts.
            data: Each client's data, passed to that client only; pooled if the method `pools_images`.
            wire: Transports the messages.

        Raises:
            fdgpriv.federation.wire.Diverged: Training gave NaN or an infinity.
            fdgpriv.federation.upload.ClientFailed: A client's answer is invalid, or its code raised an exception.
        """
        data = participants_of(method, data)
        if method.pools_images:
            federation = replace(federation, clients=tuple(data))
            wire.sizes = {name: len(images) for name, images in data.items()}
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            with self.clients(method, federation, data, wire, pool) as clients:
                repeated = None
                if self.repeats_passes and federation.device.type == "cpu" and _of_user(method, wire.defense):
                    repeated = partial(self._repeated, method, federation, data, wire)
                model = self._train(method, federation, clients, wire, pool, repeated)
                self._settle()
                if isinstance(model, UnsharedModels):
                    model.fill(clients.models())
                self.log |= clients.log()
                return model
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _repeated(
        self,
        method: FederatedMethod,
        federation: Federation,
        data: Mapping[str, ClientData],
        wire: Wire,
        checkpoints: Checkpoints,
    ) -> Mapping[str, str]:
        """The digests of the state after the pass that follows a checkpoint, by new participants that continue from it."""
        engine, transcript = type(self)(self.workers), Transcript(wire.transcript.keep)
        engine.checkpoints, engine._only_one = checkpoints, True
        wire = Wire(wire.sizes, wire.defense, transcript)
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            with engine.clients(method, federation, data, wire, pool) as clients:
                engine._train(method, federation, clients, wire, pool)
        except PassRepeated as end:
            return end.digests
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return {}

    def _train(
        self,
        method: FederatedMethod,
        federation: Federation,
        clients: Clients,
        wire: Wire,
        pool: ThreadPoolExecutor,
        repeated: Callable[[Checkpoints], Mapping[str, str]] | None = None,
    ) -> nn.Module:
        """The global model, from the server's generator driven to its end; `repeated` as of `StoredLoops`."""
        server_rng, wire.masks = stream(federation.seed, SERVER), stream(federation.seed, "masks")
        loops = self._loops(federation, clients, {"server": server_rng, "masks": wire.masks}, wire, repeated)
        server = method.server(replace(federation, loop=loops) if loops is not None else federation, server_rng)
        try:
            request = next(server)
            while True:
                if loops is not None:
                    loops.on_ask()
                self.log.update(request.diagnostics)
                if copies := is_user_code(method):
                    request = copied_request(request)
                answers = self._exchange(clients, request, wire, pool)
                if any(artifact.nbytes >= LARGE for message in answers.values() for artifact in message):
                    return_freed()
                if copies:
                    answers = {client: copied_message(message) for client, message in answers.items()}
                request = server.send(answers)
        except StopIteration as done:
            model: nn.Module = done.value
            return model

    def _exchange(self, clients: Clients, request: Request, wire: Wire, pool: ThreadPoolExecutor) -> Answers:
        """By client, its answer to this request, delivered over the wire."""
        start = perf_counter()
        delivered = {
            name: wire.down(name, request.verb, message, request.round(name))
            for name, message in request.messages.items()
        }
        self.wire_s += perf_counter() - start
        models = _models(request) or self._unsent(request, clients)
        pending = clients.send(request, delivered)
        self._evaluate(models, pool)
        messages: dict[str, Message] = {}
        for name, message in pending:
            messages[name] = message
            if len(messages) % _FREED_AFTER == 0:
                return_freed()
            if self.on_answer is not None:
                self.on_answer(request.verb, len(messages), len(delivered))
        start = perf_counter()
        answers = wire.collect(request, {name: messages[name] for name in delivered})
        self.wire_s += perf_counter() - start
        return answers

    def _loops(
        self,
        federation: Federation,
        clients: Clients,
        generators: Mapping[str, torch.Generator],
        wire: Wire,
        repeated: Callable[[Checkpoints], Mapping[str, str]] | None,
    ) -> StoredLoops | None:
        """Round loops that write checkpoints; None without checkpoints."""
        if self.checkpoints is None:
            return None
        state = {
            "clients": clients.state,
            "shared": wire.shared,
            "latest": wire.latest,
            "engine": self,
            "observer": self.observer,
            "generators": generators,  # last, since loading the others may draw from them
        }
        where = (self._settle, federation.device, clients.resumable)
        return StoredLoops(self.checkpoints, state, wire, *where, repeated, self._only_one)

    def _unsent(self, request: Request, clients: Clients) -> dict[str, ModelState]:
        """By client, its current model, for a request that begins a round and sends no artifacts."""
        begins_round = request.number is not None and request.number > self._latest
        if self.on_round is None or not begins_round or any(request.messages.values()):
            return {}
        return {name: ModelState.of(model, name, request.round(name)) for name, model in clients.models().items()}

    def _evaluate(self, models: Mapping[str, ModelState], pool: ThreadPoolExecutor) -> None:
        """Starts `on_round` if these models are of a new round."""
        if not models or self.on_round is None:
            return
        round = max(model.round for model in models.values())  # a model sent in round r is the one after r rounds
        if round > self._latest:
            self._settle()
            self._evaluation, self._latest = pool.submit(self.on_round, round, models), round

    def _settle(self) -> None:
        """Waits until `on_round` has returned."""
        if self._evaluation is not None:
            self._evaluation.result()


def _of_user(method: FederatedMethod, defense: Defense) -> bool:
    """Whether the method or a defense is not of fdgpriv, whose own are tested to continue as if nothing had happened."""
    parts = (method, *getattr(defense, "parts", (defense,)))
    return any(not type(part).__module__.startswith("fdgpriv.") for part in parts)


def mean_log(logs: Iterable[Mapping[str, tuple[float, int]]]) -> dict[str, float]:
    """The diagnostics of several clients: means over all of them, or the minimum if a name ends in ``_min``.

    Args:
        logs: Of each client, by name, a total and the number of values in it.
    """
    entries: dict[str, list[tuple[float, int]]] = {}
    for log in logs:
        for name, entry in log.items():
            entries.setdefault(name, []).append(entry)
    return {
        name: min(total / max(1, count) for total, count in sums)
        if name.endswith("_min")
        else sum(total for total, _ in sums) / max(1, sum(count for _, count in sums))
        for name, sums in entries.items()
    }


def _models(request: Request) -> dict[str, ModelState]:
    """By client, the model to evaluate: the global one if the request has it, else the one that the client is sent."""
    return {
        client: request.evaluated or artifact
        for client, message in request.messages.items()
        for artifact in message
        if isinstance(artifact, ModelState) and artifact.client == SERVER
    }
