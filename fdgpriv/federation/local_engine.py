"""Runs a server generator and its clients in one process.

Clients run in parallel, one thread each: on few cores this trains more images per second than one client on all cores.
Clients with most images start first, so that no long training runs alone at the end of a round.
Every client has its own random generator, so results do not depend on the number of threads.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.engine import Clients, Engine, mean_log
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.participant import Participant
from fdgpriv.federation.request import Request
from fdgpriv.federation.state import Resumable
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire


@dataclass
class LocalEngine(Engine):
    """Runs one federated training in this process."""

    repeats_passes: ClassVar[bool] = True

    def clients(
        self,
        method: FederatedMethod,
        federation: Federation,
        data: Mapping[str, ClientData],
        wire: Wire,
        pool: ThreadPoolExecutor,
    ) -> AbstractContextManager[Clients]:
        participants = {
            name: Participant.of(method, federation, data[name], wire.defense) for name in federation.clients
        }
        return nullcontext(LocalClients(participants, pool, wire.transcript))


class LocalClients(Clients):
    """Clients in this process.

    Args:
        participants: By client.
        pool: The threads in which clients run.
        transcript: Moves large answers to files.
    """

    def __init__(
        self, participants: Mapping[str, Participant], pool: ThreadPoolExecutor, transcript: Transcript
    ) -> None:
        self.state = self.participants = participants
        self.pool, self.transcript = pool, transcript
        self.resumable = all(isinstance(participant.client, Resumable) for participant in participants.values())

    def send(self, request: Request, delivered: Mapping[str, Message]) -> Iterator[tuple[str, Message]]:
        largest = sorted(delivered, key=lambda name: self.participants[name].samples, reverse=True)
        answers = {
            name: self.pool.submit(self._answer, name, request.verb, request.round(name), delivered[name])
            for name in largest
        }
        return ((name, answers.pop(name).result()) for name in largest)

    def models(self) -> dict[str, nn.Module]:
        models = {name: getattr(participant.client, "model", None) for name, participant in self.participants.items()}
        return {name: model for name, model in models.items() if isinstance(model, nn.Module)}

    def _answer(self, name: str, verb: str, round: int, message: Message) -> Message:
        """A client's answer; large ones lie in files until all clients have answered."""
        return self.transcript.in_files(self.participants[name].answer(verb, round, message))

    def log(self) -> dict[str, float]:
        return mean_log(getattr(participant.client, "log", {}) for participant in self.participants.values())
