"""Settings and optimiser shared by the training recipes of the shipped networks."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Recipe:
    """Common settings of a training.

    Attributes:
        images: Number of training images.
        held_out: Number of images for the figures on the card, from another random stream.
        seed: Of all random streams.
    """

    images: int = 16000
    held_out: int = 2000
    seed: int = 1


class Descent:
    """Adam with a learning rate that decays from `lr` to 0 along a cosine."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, steps: int) -> None:
        self.optimizer = torch.optim.Adam(parameters, lr=lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)

    def step(self, loss: Tensor) -> None:
        """One optimiser step on the scalar `loss`."""
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.schedule.step()
