"""How a client's local training draws mini-batches and computes gradients: plain SGD, unless a defense replaces it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

Passes = Callable[[int, torch.Generator], Iterator[Tensor]]


@dataclass(frozen=True, eq=False)
class Batch:
    """One mini-batch: index (B,) into the local data, images (B, 3, H, W) augmented, labels (B,)."""

    index: Tensor
    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> "Batch":
        """The samples from `start` to `stop`."""
        return Batch(self.index[start:stop], self.images[start:stop], self.labels[start:stop])


Loss = Callable[[Batch], Tensor]


@dataclass(frozen=True, eq=False)
class Workload:
    """One client's local training.

    Attributes:
        rows: Training samples; the copies of one image are consecutive rows.
        copies: Rows of each image.
        batch_size: B, in rows.
        rounds: T, the maximum number of rounds in which a client trains.
        passes: Gives the mini-batches of one round of plain SGD for a number of rows, as indices into the rows.
    """

    rows: int
    copies: int
    batch_size: int
    rounds: int
    passes: Passes

    @property
    def images(self) -> int:
        """n, the number of images behind the rows."""
        return self.rows // self.copies

    @cached_property
    def steps(self) -> int:
        """Mini-batches per round."""
        return sum(1 for _ in self.passes(self.rows, torch.Generator()))


@dataclass(frozen=True)
class LocalTraining:
    """Plain SGD: shuffled mini-batches, and the gradient of each one's loss.

    Attributes:
        elementwise: Whether each entry of a parameter has its own gradient step, so that several models can be trained as
            one.
    """

    elementwise: ClassVar[bool] = True

    def check(self, work: Workload) -> None:
        """Raises ValueError, before anything is trained, if a client cannot train this way."""

    def network(self, model: nn.Module) -> nn.Module:
        """The network that is trained instead of `model`, which may be changed; the same one here."""
        return model

    def undefended(self) -> "LocalTraining":
        """Plain SGD on the same network, for artifacts as they were before the defense."""
        return self

    def batches(self, work: Workload, rng: torch.Generator) -> Iterator[Tensor]:
        """The mini-batches of one round, as indices into the rows."""
        yield from work.passes(work.rows, rng)

    def backward(self, model: nn.Module, loss: Loss, batch: Batch, work: Workload, rng: torch.Generator) -> None:
        """Sets the gradients of the parameters of `model`, which have none, for one step.

        Args:
            model: In training mode.
            loss: Mean loss of the samples of a mini-batch.
            batch: The mini-batch.
            work: The client's training.
            rng: The client's random numbers.
        """
        loss(batch).backward()


PLAIN = LocalTraining()
