"""Latent space inversion: latents that a head assigns to given classes and whose moments are its BatchNorm's (LSI, Eq. 4-7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ._latent_classifier import Head

Distance = Literal["squared", "norm"]
HeadMode = Literal["eval", "train"]


@dataclass(frozen=True)
class Inversion:
    """How latents are synthesised from a head. Letters: S batches, B latents in a batch, p numbers in a latent.

    Attributes:
        steps, lr: Of Adam, with betas (0.5, 0.9).
        batches, batch_size: S and B.
        class_weight, bn_weight, norm_weight: Of Eq. 4 (1 in the paper), Eq. 5 and Eq. 6.
        distance: ``squared`` L2 norms in Eq. 5 and 6, or ``norm``, not squared (the released code).
        mode: The head in ``eval``, or in ``train``: then its running statistics follow the latents (the released code).
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
    """Latents (C, S, B, p) of C clients under optimisation, and Adam's memory of them.

    Args:
        how: As said there.
        starts: (C, S, B, p), of `starts_for`.
    """

    def __init__(self, how: Inversion, starts: Tensor) -> None:
        self.how, self.value = how, starts.clone().requires_grad_()
        self.adam = torch.optim.Adam([self.value], how.lr, betas=(0.5, 0.9))

    def fit(self, heads: Sequence[Head], labels: Tensor) -> Tensor:
        """Optimise them for the clients' heads and labels (C, S, B).

        No batch touches another: gradients of a sum, and Adam works on each number alone, so that all clients' advance at
        once. In train mode a client's batches meet in its running statistics, and pass its head one after another.

        Returns: Eq. 5 of the result by client (C,), a batch's mean, in evaluation mode.
        """
        trained = self.how.mode == "train"
        for head in heads:
            head.train(trained).requires_grad_(False)
        together = _Stacked.of(heads)
        for _ in range(self.how.steps):
            self.adam.zero_grad()
            if trained:
                self._one_by_one(heads, labels)
            else:
                self.loss(together.logits(self.value), together.mean, together.variance, self.value, labels).backward()
            self.adam.step()
        together = _Stacked.of([head.eval() for head in heads])
        with torch.no_grad():
            return statistics_loss(together.mean, together.variance, self.value, self.how.distance).mean(-1)

    def _one_by_one(self, heads: Sequence[Head], labels: Tensor) -> None:
        for head, latents, classes in zip(heads, self.value, labels, strict=True):
            for batch, of_batch in zip(latents, classes, strict=True):
                logits = head(batch)  # its statistics follow, before Eq. 5 looks at them
                self.loss(logits, *_running(head), batch, of_batch).backward()

    def loss(self, logits: Tensor, mean: Tensor, variance: Tensor, latents: Tensor, labels: Tensor) -> Tensor:
        """Eq. 7 of batches (..., B, p), summed over them, with logits (..., B, K), statistics (..., p), labels (..., B)."""
        entropy = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum")
        moments = statistics_loss(mean, variance, latents, self.how.distance).sum()
        size = _distance(latents, self.how.distance).mean(-1).sum()
        of_class = self.how.class_weight * entropy / labels.shape[-1]
        return of_class + self.how.bn_weight * moments + self.how.norm_weight * size


@dataclass(frozen=True, eq=False)
class _Stacked:
    """Several heads in evaluation mode as one: statistics (C, 1, p), weight (C, p, K) and bias (C, 1, K)."""

    mean: Tensor
    variance: Tensor
    eps: float
    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, heads: Sequence[Head]) -> "_Stacked":
        mean, variance = (torch.stack(parts)[:, None] for parts in zip(*map(_running, heads), strict=True))
        weight = torch.stack([head.linear.weight.T for head in heads])
        return cls(
            mean, variance, heads[0].norm.eps, weight, torch.stack([head.linear.bias for head in heads])[:, None]
        )

    def logits(self, latents: Tensor) -> Tensor:
        """(C, S, B, K) of latents (C, S, B, p)."""
        normal = (latents.flatten(1, 2) - self.mean) * (self.variance + self.eps).rsqrt()
        logits: Tensor = torch.baddbmm(self.bias, normal, self.weight).unflatten(1, latents.shape[1:3])
        return logits


def _running(head: Head) -> tuple[Tensor, Tensor]:
    """Its running mean and variance (p,)."""
    if head.norm.running_mean is None or head.norm.running_var is None:
        raise ValueError("want a BatchNorm with running statistics, got one without")
    return head.norm.running_mean, head.norm.running_var


def statistics_loss(mean: Tensor, variance: Tensor, latents: Tensor, distance: str) -> Tensor:
    """Eq. 5 for each batch of latents (..., B, p): from its mean and biased variance to these of a head (..., p); (...)."""
    of_mean = latents.mean(-2) - mean
    of_variance = latents.var(-2, correction=0) - variance
    return _distance(of_mean, distance) + _distance(of_variance, distance)


def _distance(difference: Tensor, distance: str) -> Tensor:
    squared = difference.square().sum(-1)
    return squared if distance == "squared" else squared.clamp_min(1e-24).sqrt()


def starts_for(how: Inversion, latent_dim: int, rng: torch.Generator) -> Tensor:
    """Latents (S, B, p) of N(0, 1) to start from."""
    return torch.randn(how.batches, how.batch_size, latent_dim, generator=rng)


def labels_for(how: Inversion, share: Tensor, rng: torch.Generator) -> Tensor:
    """Classes (S, B) drawn from the shares (K,)."""
    return torch.multinomial(share, how.batches * how.batch_size, replacement=True, generator=rng).view(how.batches, -1)
