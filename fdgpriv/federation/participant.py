"""The client's half of a training: the method's client, and the defense of what it shares."""

from dataclasses import dataclass
from typing import ClassVar, Self
from zlib import crc32

import torch

from fdgpriv.artifacts.artifact import SERVER, Message, copied_message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.state import Resumable
from fdgpriv.federation.upload import ClientFailed, client_errors
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.user_code import is_user_code

CONSTRUCTION = "its construction"  # in errors, what precedes a client's first request


_PURPOSES = (SERVER, "masks", "defense of ", "data of ")  # beginnings of the names of streams that are no client's


def stream(seed: int, purpose: str) -> torch.Generator:
    """The random generator of the server, or of a purpose, in a run with this seed."""
    return generator(seed, 2, crc32(purpose.encode()))


def client_stream(seed: int, client: str) -> torch.Generator:
    """The random generator of a client, another one than that of any purpose, whatever the client's name."""
    return generator(seed, 2, crc32(client.encode()), *([1] if client.startswith(_PURPOSES) else []))


@dataclass(eq=False)
class Participant(Resumable):
    """One client, wherever it runs: in the server's process or in one of its own.

    Attributes:
        name: The client's name.
        samples: Its number of training samples.
        defense: Applied to what it shares.
        client: The method's client.
        rng: Random numbers of the client.
        noise: Random numbers of the defense.
        received: The latest model received from the server; None before the first one.
        copies: Whether a user wrote the client, which then gets and gives copies of tensors.
    """

    # generators last, since loading the others may draw from them
    checkpointed: ClassVar[tuple[str, ...]] = ("client", "received", "rng", "noise")

    name: str
    samples: int
    defense: Defense
    client: object
    rng: torch.Generator
    noise: torch.Generator
    received: ModelState | None = None
    copies: bool = False

    @classmethod
    def of(cls, method: FederatedMethod, federation: Federation, data: ClientData, defense: Defense) -> Self:
        """The client that holds this data, before its first request.

        Raises:
            ClientFailed: Its construction raised an exception.
        """
        name, seed = data.client, federation.seed
        rng, noise = client_stream(seed, name), stream(seed, f"defense of {name}")
        with client_errors(name, CONSTRUCTION, None):
            copies = is_user_code(method)
            client = method.client(federation, data.copied() if copies else data, rng)
            return cls(name, len(data), defense, client, rng, noise, copies=copies or is_user_code(client))

    def answer(self, verb: str, round: int, message: Message) -> Message:
        """The client's answer to a request, as it leaves the client: defended.

        Raises:
            ClientFailed: The client or its defense raised an exception, or the answer is no list.
        """
        models = [artifact for artifact in message if isinstance(artifact, ModelState) and artifact.client == SERVER]
        self.received = models[-1] if models else self.received
        with client_errors(self.name, verb, round):
            outgoing = getattr(self.client, verb)(copied_message(message) if self.copies else message)
            if not isinstance(outgoing, list | tuple):
                wanted = f"want a list of artifacts, got {type(outgoing).__name__}"
                raise ClientFailed(self.name, verb, round, wanted)
            shared = [self.defense.shared(content, self.noise, self.received) for content in outgoing]
            shared = copied_message(shared) if self.copies else shared
            return [artifact for artifact in shared if not self.defense.withholds(artifact, self.samples)]
