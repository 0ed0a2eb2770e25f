"""What the recipes of the shipped networks share: the images they simulate artifacts from, and the descent."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Recipe:
    """Settings of a training.

    Attributes:
        images: Practice images.
        held_out: Practice images of another stream, for the figures on the card.
        seed: Of everything.
    """

    images: int = 16000
    held_out: int = 2000
    seed: int = 1


class Descent:
    """Adam, its rate falling from `lr` to 0 along a cosine."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, steps: int) -> None:
        self.optimizer = torch.optim.Adam(parameters, lr=lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)

    def step(self, loss: Tensor) -> None:
        """One step down `loss`, a number."""
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.schedule.step()
