"""The local engine: carries messages between a server generator and its clients inside one process.

Clients answer side by side, one thread each: on few cores that trains more images a second than one client on all of
them. Every client computes on one thread with its own generator, so that results do not depend on how many work at once.
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
from fdgpriv.federation.upload import blaming
from fdgpriv.federation.wire import Wire
from fdgpriv.utils.seeds import generator

Watch = Callable[[int, Mapping[str, ModelState]], None]
Count = Callable[[str, int, int], None]


def stream(seed: int, name: str) -> torch.Generator:
    """The generator that belongs to `name` under `seed`."""
    return generator(seed, 2, crc32(name.encode()))


@dataclass
class LocalEngine:
    """Drives one run.

    Attributes:
        workers: How many clients answer at once.
        watch: Told of each round and, by client, the model sent to it in that round, which is the one after so many rounds:
            one object for all where the model is global. For evaluation outside the federation.
        count: Told of each answer: the verb, how many clients have answered it, how many were asked.
        wire_s: Seconds spent on the wire so far (defending, recording, delivering).
        log: Means over clients of what they noted of their training, or the least client's where a name ends in ``_min``,
            and what the server noted last of its own, for the evaluator; it crosses no wire.
    """

    workers: int = 2
    watch: Watch | None = None
    count: Count | None = None
    wire_s: float = field(default=0.0, init=False)
    log: dict[str, float] = field(default_factory=dict, init=False)

    def run(
        self, method: FederatedMethod, federation: Federation, data: Mapping[str, ClientData], wire: Wire
    ) -> nn.Module:
        """The global model that `method` trains.

        Raises:
            fdgpriv.federation.wire.Diverged: Training gave NaN or an infinity.
            fdgpriv.federation.upload.ClientFailed: A client answered with what it was not asked for, or raised an exception.

        Args:
            method: Whose server and clients speak.
            federation: What everybody may know.
            data: What each client holds; reaches that client only.
            wire: Between them.
        """
        seed = federation.seed
        rngs = {name: stream(seed, name) for name in federation.clients}
        noise = {name: stream(seed, f"defense of {name}") for name in federation.clients}
        clients = {name: _client(method, federation, data[name], rngs[name]) for name in federation.clients}
        server = method.server(federation, stream(seed, SERVER))
        watched = -1
        told: Future[None] | None = None  # what watches a round looks at its model while clients already train on
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
                if (models := _models(ask)) and self.watch is not None:
                    round = max(model.round for model in models.values()) if ask.after is None else ask.after
                    if round > watched:
                        _ = told and told.result()
                        told, watched = pool.submit(self.watch, round, models), round
                outgoing = {}
                for name, future in futures.items():
                    outgoing[name] = future.result()
                    if self.count is not None:
                        self.count(ask.verb, len(outgoing), len(futures))
                answers = {name: self._up(wire, name, ask, out, noise[name]) for name, out in outgoing.items()}
                ask = server.send(answers)
        except StopIteration as done:
            _ = told and told.result()
            model: nn.Module = done.value
            self._collect(clients.values())
            return model
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            torch.set_num_threads(threads)

    def _collect(self, clients: Iterable[object]) -> None:
        noted: dict[str, list[tuple[float, int]]] = {}
        for client in clients:
            for name, entry in getattr(client, "log", {}).items():
                noted.setdefault(name, []).append(entry)
        for name, entries in noted.items():
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
    with blaming(data.client, "its construction", None):
        return method.client(federation, data, rng)


def _answer(client: object, name: str, ask: Ask, message: Message) -> Outgoing:
    with blaming(name, ask.verb, ask.round(name)):
        answer: Outgoing = getattr(client, ask.verb)(message)
        return answer


def _models(ask: Ask) -> dict[str, ModelState]:
    """By client, the model that the server sends it."""
    return {
        client: artifact
        for client, message in ask.messages.items()
        for artifact in message
        if isinstance(artifact, ModelState) and artifact.client == SERVER
    }
