"""Runs a server generator and its clients in one process.

Clients run in parallel, one thread each: on few cores this trains more images per second than one client on all cores.
Those with most images begin, so that none of them is left alone at the end of a round.
Every client has its own random generator, so results do not depend on the number of threads.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import ClassVar
from zlib import crc32

import torch
from torch import nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import ClientReply
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers, Request
from fdgpriv.federation.state import Resumable
from fdgpriv.federation.stored_loops import StoredLoops
from fdgpriv.federation.upload import client_errors
from fdgpriv.federation.wire import Wire
from fdgpriv.utils.arithmetic import fixed_arithmetic
from fdgpriv.utils.file_memory import LARGE
from fdgpriv.utils.memory import return_freed
from fdgpriv.utils.seeds import generator

RoundCallback = Callable[[int, Mapping[str, ModelState]], None]
AnswerCallback = Callable[[str, int, int], None]


def stream(seed: int, name: str) -> torch.Generator:
    """The random generator of the participant or purpose `name` in a run with this seed."""
    return generator(seed, 2, crc32(name.encode()))


@dataclass
class LocalEngine(Resumable):
    """Runs one federated training.

    Attributes:
        workers: Number of clients that run in parallel.
        on_round: Called for each round with its number r and, by client, the model sent to it, which is the one after r
            rounds; the same object for all clients if the model is global. For evaluation outside the federation.
        on_answer: Called after each answer with the verb, the number of answers so far, and the number of clients asked.
        checkpoints: Stores the training between rounds, and continues it; None for neither. Only trainings whose clients
            are `Resumable` and whose server asks within the loops of `Federation` are stored.
        observer: What belongs to the checkpoint besides the participants' state.
        wire_s: Seconds spent so far in message exchange (defense, recording, delivery).
        log: Diagnostics for the evaluator, never sent: means over clients, or the minimum if a name ends in ``_min``, and
            the server's latest.
    """

    checkpointed: ClassVar[tuple[str, ...]] = ("wire_s", "log", "_latest")

    workers: int = 2
    on_round: RoundCallback | None = None
    on_answer: AnswerCallback | None = None
    checkpoints: Checkpoints | None = None
    observer: Resumable = field(default_factory=Resumable)
    wire_s: float = field(default=0.0, init=False)
    log: dict[str, float] = field(default_factory=dict, init=False)
    _latest: int = field(default=-1, init=False)  # the latest round passed to on_round
    _evaluation: Future[None] | None = field(default=None, init=False)  # on_round runs while clients continue to train

    @fixed_arithmetic()
    def run(
        self, method: FederatedMethod, federation: Federation, data: Mapping[str, ClientData], wire: Wire
    ) -> nn.Module:
        """The global model that `method` trains.

        Args:
            method: Provides server and clients.
            federation: The public facts.
            data: Each client's data, passed to that client only.
            wire: Transports the messages.

        Raises:
            fdgpriv.federation.wire.Diverged: Training gave NaN or an infinity.
            fdgpriv.federation.upload.ClientFailed: A client's answer is invalid, or its code raised an exception.
        """
        seed = federation.seed
        rngs = {name: stream(seed, name) for name in federation.clients}
        noise = {name: stream(seed, f"defense of {name}") for name in federation.clients}
        clients = {name: _client(method, federation, data[name], rngs[name]) for name in federation.clients}
        server_rng = stream(seed, SERVER)
        wire.masks = stream(seed, "masks")
        generators = {"clients": rngs, "defenses": noise, "server": server_rng, "masks": wire.masks}
        loops = self._loops(federation, clients, generators, wire)
        server = method.server(replace(federation, loop=loops) if loops is not None else federation, server_rng)
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            ask = next(server)
            while True:
                if loops is not None:
                    loops.on_ask()
                self.log.update(ask.diagnostics)
                delivered = {name: self._down(wire, name, ask) for name in ask.messages}
                largest = sorted(delivered, key=lambda name: len(data[name]), reverse=True)
                futures = {name: pool.submit(_answer, clients[name], name, ask, delivered[name]) for name in largest}
                self._evaluate(ask, pool)
                outgoing = {}
                for name in largest:
                    outgoing[name] = futures[name].result()
                    if self.on_answer is not None:
                        self.on_answer(ask.verb, len(outgoing), len(futures))
                answers = self._up(wire, ask, {name: outgoing[name] for name in delivered}, noise)
                large = any(sent.nbytes >= LARGE for message in answers.values() for sent in message)
                del futures, outgoing  # what the clients sent: it is in the transcript
                if large:
                    return_freed()
                ask = server.send(answers)
        except StopIteration as done:
            self._settle()
            model: nn.Module = done.value
            self._collect(clients.values())
            return model
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _loops(
        self, federation: Federation, clients: Mapping[str, object], generators: Mapping[str, object], wire: Wire
    ) -> StoredLoops | None:
        """The server's loops with checkpoints; None without."""
        if self.checkpoints is None:
            return None
        sent = {"shared": wire.shared, "received": wire.received, "latest": wire.latest}
        state = {"clients": clients, **sent, "engine": self, "observer": self.observer}
        complete = all(isinstance(client, Resumable) for client in clients.values())
        everything = {**state, "generators": generators}  # last, since loading the others may draw from them
        return StoredLoops(self.checkpoints, everything, wire, self._settle, federation.device, complete)

    def _evaluate(self, ask: Request, pool: ThreadPoolExecutor) -> None:
        """Starts `on_round` if this request sends the model of a new round."""
        if not (models := _models(ask)) or self.on_round is None:
            return
        round = max(model.round for model in models.values())  # a model sent in round r is the one after r rounds
        if round > self._latest:
            self._settle()
            self._evaluation, self._latest = pool.submit(self.on_round, round, models), round

    def _settle(self) -> None:
        """Waits for `on_round`."""
        if self._evaluation is not None:
            self._evaluation.result()

    def _collect(self, clients: Iterable[object]) -> None:
        logs: dict[str, list[tuple[float, int]]] = {}
        for client in clients:
            for name, entry in getattr(client, "log", {}).items():
                logs.setdefault(name, []).append(entry)
        for name, entries in logs.items():
            if name.endswith("_min"):
                self.log[name] = min(total / max(1, count) for total, count in entries)
            else:
                self.log[name] = sum(total for total, _ in entries) / max(1, sum(count for _, count in entries))

    def _down(self, wire: Wire, name: str, ask: Request) -> Message:
        start = perf_counter()
        message = wire.down(name, ask.verb, ask.messages[name], ask.round(name))
        self.wire_s += perf_counter() - start
        return message

    def _up(
        self, wire: Wire, ask: Request, outgoing: Mapping[str, ClientReply], rngs: Mapping[str, torch.Generator]
    ) -> Answers:
        start = perf_counter()
        answers = wire.collect(ask, outgoing, rngs)
        self.wire_s += perf_counter() - start
        return answers


def _client(method: FederatedMethod, federation: Federation, data: ClientData, rng: torch.Generator) -> object:
    with client_errors(data.client, "its construction", None):
        return method.client(federation, data, rng)


def _answer(client: object, name: str, ask: Request, message: Message) -> ClientReply:
    with client_errors(name, ask.verb, ask.round(name)):
        answer: ClientReply = getattr(client, ask.verb)(message)
        return answer


def _models(ask: Request) -> dict[str, ModelState]:
    """The model that the server sends to each client, by client."""
    return {
        client: artifact
        for client, message in ask.messages.items()
        for artifact in message
        if isinstance(artifact, ModelState) and artifact.client == SERVER
    }
