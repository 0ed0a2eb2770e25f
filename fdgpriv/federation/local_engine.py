"""Runs a server generator and its clients in one process.

Clients run in parallel, one thread each: on few cores this trains more images per second than one client on all cores.
Every client has its own random generator, so results do not depend on the number of threads.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from zlib import crc32

import torch
from torch import nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import Outgoing
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.ask import Ask
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.upload import client_errors
from fdgpriv.federation.wire import Wire
from fdgpriv.utils.seeds import generator

RoundCallback = Callable[[int, Mapping[str, ModelState]], None]
AnswerCallback = Callable[[str, int, int], None]


def stream(seed: int, name: str) -> torch.Generator:
    """The random generator of the participant or purpose `name` in a run with this seed."""
    return generator(seed, 2, crc32(name.encode()))


@dataclass
class LocalEngine:
    """Runs one federated training.

    Attributes:
        workers: Number of clients that run in parallel.
        on_round: Called for each round with its number r and, by client, the model sent to it, which is the one after r
            rounds; the same object for all clients if the model is global. For evaluation outside the federation.
        on_answer: Called after each answer with the verb, the number of answers so far, and the number of clients asked.
        wire_s: Seconds spent so far in message exchange (defense, recording, delivery).
        log: Diagnostics for the evaluator, never sent: means over clients, or the minimum if a name ends in ``_min``, and
            the server's latest.
    """

    workers: int = 2
    on_round: RoundCallback | None = None
    on_answer: AnswerCallback | None = None
    wire_s: float = field(default=0.0, init=False)
    log: dict[str, float] = field(default_factory=dict, init=False)

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
        server = method.server(federation, stream(seed, SERVER))
        latest = -1  # the latest round passed to on_round
        evaluation: Future[None] | None = None  # on_round runs while clients continue to train
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            ask = next(server)
            while True:
                self.log.update(ask.noted)
                delivered = {name: self._down(wire, name, ask) for name in ask.messages}
                futures = {
                    name: pool.submit(_answer, clients[name], name, ask, message) for name, message in delivered.items()
                }
                if (models := _models(ask)) and self.on_round is not None:
                    round = max(model.round for model in models.values()) if ask.after is None else ask.after
                    if round > latest:
                        _ = evaluation and evaluation.result()
                        evaluation, latest = pool.submit(self.on_round, round, models), round
                outgoing = {}
                for name, future in futures.items():
                    outgoing[name] = future.result()
                    if self.on_answer is not None:
                        self.on_answer(ask.verb, len(outgoing), len(futures))
                answers = {name: self._up(wire, name, ask, out, noise[name]) for name, out in outgoing.items()}
                ask = server.send(answers)
        except StopIteration as done:
            _ = evaluation and evaluation.result()
            model: nn.Module = done.value
            self._collect(clients.values())
            return model
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            torch.set_num_threads(threads)

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

    def _down(self, wire: Wire, name: str, ask: Ask) -> Message:
        start = perf_counter()
        message = wire.down(name, ask.verb, ask.messages[name])
        self.wire_s += perf_counter() - start
        return message

    def _up(self, wire: Wire, name: str, ask: Ask, out: Outgoing, rng: torch.Generator) -> Message:
        start = perf_counter()
        message = wire.up(name, ask.verb, out, rng, ask.round(name), ask.wanted)
        self.wire_s += perf_counter() - start
        return message


def _client(method: FederatedMethod, federation: Federation, data: ClientData, rng: torch.Generator) -> object:
    with client_errors(data.client, "its construction", None):
        return method.client(federation, data, rng)


def _answer(client: object, name: str, ask: Ask, message: Message) -> Outgoing:
    with client_errors(name, ask.verb, ask.round(name)):
        answer: Outgoing = getattr(client, ask.verb)(message)
        return answer


def _models(ask: Ask) -> dict[str, ModelState]:
    """The model that the server sends to each client, by client."""
    return {
        client: artifact
        for client, message in ask.messages.items()
        for artifact in message
        if isinstance(artifact, ModelState) and artifact.client == SERVER
    }
