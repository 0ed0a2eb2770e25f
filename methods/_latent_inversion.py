"""Latent space inversion: optimises latents to match given classes and the head's BatchNorm statistics (LSI, Eq. 4-7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ._latent_classifier import FrozenHeads, Head

Distance = Literal["squared", "norm"]
HeadMode = Literal["eval", "train"]


@dataclass(frozen=True)
class Inversion:
    """Settings of the inversion. Shapes: C clients, S batches, B latents per batch, p dimensions per latent.

    Attributes:
        steps, lr: Of Adam, with betas (0.5, 0.9).
        batches, batch_size: S and B.
        class_weight, bn_weight, norm_weight: Of Eq. 4 (1 in the paper), Eq. 5 and Eq. 6.
        distance: ``squared`` L2 norm in Eq. 5 and 6, or ``norm``, not squared (the released code).
        mode: Of the head: ``eval``, or ``train``, where latents update its running statistics (the released code).
    """

    steps: int
    lr: float
    batches: int
    batch_size: int
    class_weight: float
    bn_weight: float
    norm_weight: float
    distance: Distance
    mode: HeadMode


class Latents:
    """Latents (C, S, B, p) of C clients under optimisation, with Adam's state.

    Args:
        settings: Settings of the inversion.
        starts: Initial latents (C, S, B, p), from `starts_for`.
    """

    def __init__(self, settings: Inversion, starts: Tensor) -> None:
        self.settings, self.value = settings, starts.clone().requires_grad_()
        self.adam = torch.optim.Adam([self.value], settings.lr, betas=(0.5, 0.9))

    def fit(self, heads: Sequence[Head], labels: Tensor) -> Tensor:
        """Optimises the latents for the clients' heads and labels (C, S, B).

        Batches are independent and Adam is elementwise, so all clients are optimised jointly. In train mode a client's
        batches share its running statistics and pass its head sequentially.

        Returns: Eq. 5 of the result by client (C,), averaged over batches, in evaluation mode.
        """
        trained = self.settings.mode == "train"
        for head in heads:
            head.train(trained).requires_grad_(False)
        frozen = FrozenHeads.of(heads)
        for _ in range(self.settings.steps):
            self.adam.zero_grad()
            if trained:
                self._backward_sequentially(heads, labels)
            else:
                self.loss(frozen.each(self.value), frozen.mean, frozen.variance, self.value, labels).backward()
            self.adam.step()
        frozen = FrozenHeads.of([head.eval() for head in heads])
        with torch.no_grad():
            return statistics_loss(frozen.mean, frozen.variance, self.value, self.settings.distance).mean(-1)

    def _backward_sequentially(self, heads: Sequence[Head], labels: Tensor) -> None:
        for head, latents, classes in zip(heads, self.value, labels, strict=True):
            for batch, of_batch in zip(latents, classes, strict=True):
                logits = head(batch)  # updates its running statistics, which Eq. 5 then uses
                self.loss(logits, *head.running(), batch, of_batch).backward()

    def loss(self, logits: Tensor, mean: Tensor, variance: Tensor, latents: Tensor, labels: Tensor) -> Tensor:
        """Eq. 7 summed over batches (..., B, p), with logits (..., B, K), statistics (..., p), labels (..., B)."""
        entropy = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum")
        moments = statistics_loss(mean, variance, latents, self.settings.distance).sum()
        size = _distance(latents, self.settings.distance).mean(-1).sum()
        of_class = self.settings.class_weight * entropy / labels.shape[-1]
        return of_class + self.settings.bn_weight * moments + self.settings.norm_weight * size


def statistics_loss(mean: Tensor, variance: Tensor, latents: Tensor, distance: str) -> Tensor:
    """Eq. 5 (...): distance of mean and biased variance of latents (..., B, p) to a head's statistics (..., p)."""
    of_mean = latents.mean(-2) - mean
    of_variance = latents.var(-2, correction=0) - variance
    return _distance(of_mean, distance) + _distance(of_variance, distance)


def _distance(difference: Tensor, distance: str) -> Tensor:
    squared = difference.square().sum(-1)
    return squared if distance == "squared" else squared.clamp_min(1e-24).sqrt()


def starts_for(settings: Inversion, latent_dim: int, rng: torch.Generator) -> Tensor:
    """Initial latents (S, B, p) from N(0, 1)."""
    return torch.randn(settings.batches, settings.batch_size, latent_dim, generator=rng)


def labels_for(settings: Inversion, shares: Tensor, rng: torch.Generator) -> Tensor:
    """Classes (S, B) drawn with probabilities `shares` (K,)."""
    return torch.multinomial(shares, settings.batches * settings.batch_size, replacement=True, generator=rng).view(
        settings.batches, -1
    )
