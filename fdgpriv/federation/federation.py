"""The public facts of a federation: its clients, classes, image size and network."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from fdgpriv.federation.held_out import SHARE
from fdgpriv.models.backbone import Backbone

Loop = Callable[[str, int, Mapping[str, object]], Iterable[int]]


def plain_loop(name: str, count: int, state: Mapping[str, object]) -> Iterable[int]:
    """The numbers below `count`: a server's loop without checkpoints."""
    return range(count)


@dataclass(frozen=True)
class Federation:
    """Facts known to all participants. The server knows only these and what it receives.

    Attributes:
        clients: The clients' names.
        classes: K.
        image_size: H = W, in pixels.
        backbone: Builds the network, initialised from a generator.
        seed: Of the run.
        device: Device of the clients' training.
        held_out: Share of its images that a client holds out for validation.
        loop: How the engine carries out the server's loops (`rounds`, `stage`).
    """

    clients: tuple[str, ...]
    classes: int
    image_size: int
    backbone: "Callable[[torch.Generator], Backbone]"
    seed: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    held_out: float = SHARE
    loop: Loop = field(default=plain_loop, compare=False)

    def rounds(self, count: int, **state: object) -> Iterable[int]:
        """The rounds of a server, 0 to `count` - 1; an interrupted training continues at the first one that is not complete.

        Args:
            count: Number of rounds.
            state: The server's state between rounds, except its generator: networks, optimisers, dictionaries and
                `Resumable` objects. It is stored before a round, and loaded in place when a training continues.
        """
        return self.loop("rounds", count, state)

    def stage(self, name: str, **state: object) -> Iterable[int]:
        """A loop of one pass around requests that precede the rounds: skipped if a continued training is past it."""
        return self.loop(name, 1, state)

    def sample(self, participants: int | None, rng: torch.Generator) -> list[str]:
        """`participants` clients sampled without replacement, in federation order; all of them for None."""
        if participants is None or participants >= len(self.clients):
            return list(self.clients)
        if participants < 1:
            raise ValueError(f"want at least 1 participant, got {participants}")
        chosen = torch.randperm(len(self.clients), generator=rng)[:participants]
        return [self.clients[i] for i in sorted(chosen.tolist())]
