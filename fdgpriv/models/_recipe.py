"""The settings with which the shipped networks are trained, and the descent that both share."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Recipe:
    """Settings of both trainings.

    Attributes:
        images: Practice images.
        held_out: Practice images of another stream, for the figures on the cards.
        batch: Images to a step of the codec; the extractor takes four times as many.
        extractor_steps: Steps of the extractor.
        redraw_steps: Steps of encoder and decoder together.
        style_steps: Steps of the decoder alone.
        lr: Adam's, falling to 0 along a cosine.
        reading: Weight of the losses that read digit and look from the features.
        redrawing: Weight of the redrawing loss in the last step.
        style: Weight of the style loss.
        seed: Of everything.
    """

    images: int = 16000
    held_out: int = 2000
    batch: int = 16
    extractor_steps: int = 1500
    redraw_steps: int = 1600
    style_steps: int = 1000
    lr: float = 2e-3
    reading: float = 0.003
    redrawing: float = 200.0
    style: float = 10.0
    seed: int = 1


class Descent:
    """Adam, its rate falling to 0 along a cosine."""

    def __init__(self, parameters: list[nn.Parameter], recipe: Recipe, steps: int) -> None:
        self.optimizer = torch.optim.Adam(parameters, lr=recipe.lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)

    def step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.schedule.step()
