"""The public facts of a federation: its clients, classes, image size and network."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from fdgpriv.models.backbone import Backbone


@dataclass(frozen=True)
class Federation:
    """Facts known to all participants; besides them, the server has only what it receives.

    Attributes:
        clients: The clients' names.
        classes: K.
        image_size: H = W, in pixels.
        backbone: Builds the network, initialised from a generator.
        seed: Of the run.
        device: Device of the clients' training.
    """

    clients: tuple[str, ...]
    classes: int
    image_size: int
    backbone: "Callable[[torch.Generator], Backbone]"
    seed: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def sample(self, participants: int | None, rng: torch.Generator) -> list[str]:
        """`participants` clients sampled without replacement, in federation order; all of them for None."""
        if participants is None or participants >= len(self.clients):
            return list(self.clients)
        if participants < 1:
            raise ValueError(f"want at least 1 participant, got {participants}")
        chosen = torch.randperm(len(self.clients), generator=rng)[:participants]
        return [self.clients[i] for i in sorted(chosen.tolist())]
