"""Latent space inversion: latents that a head assigns to given classes and whose moments are its BatchNorm's (LSI, Eq. 4-7)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ._latent_classifier import Head

LABELS = ("uniform", "marginal")
DISTANCES = ("squared", "norm")
HEAD_MODES = ("eval", "train")
STARTS = ("fresh", "carried")


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
    distance: str
    mode: str


class Latents:
    """Latents (S, B, p) under optimisation, and Adam's memory of them; starts from N(0, 1)."""

    def __init__(self, how: Inversion, latent_dim: int, rng: torch.Generator, device: torch.device) -> None:
        drawn = torch.randn(how.batches, how.batch_size, latent_dim, generator=rng)
        self.how, self.value = how, drawn.to(device).requires_grad_()
        self.adam = torch.optim.Adam([self.value], how.lr, betas=(0.5, 0.9))

    def fit(self, head: Head, labels: Tensor) -> float:
        """Optimise them for `head` and labels (S, B); returns Eq. 5 of the result, a batch's mean, in evaluation mode.

        The S batches do not touch each other: gradients of a sum, and Adam works on each number alone, so that all
        advance at once. In train mode they meet in the running statistics, and pass the head one after another.
        """
        trained = self.how.mode == "train"
        head.train(trained)
        for parameter in head.parameters():
            parameter.requires_grad_(False)
        for _ in range(self.how.steps):
            self.adam.zero_grad()
            if trained:
                for latents, classes in zip(self.value.split(1), labels.split(1), strict=True):
                    self.loss(head, latents, classes).backward()
            else:
                self.loss(head, self.value, labels).backward()
            self.adam.step()
        head.eval()
        with torch.no_grad():
            return float(statistics_loss(head.norm, self.value, self.how.distance).mean())

    def loss(self, head: Head, latents: Tensor, labels: Tensor) -> Tensor:
        """Eq. 7, summed over the batches (S, B, p) and (S, B)."""
        logits = head(latents.flatten(0, 1))
        entropy = nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum") / labels.shape[1]
        moments = statistics_loss(head.norm, latents, self.how.distance).sum()
        size = _distance(latents, self.how.distance).mean(1).sum()
        return self.how.class_weight * entropy + self.how.bn_weight * moments + self.how.norm_weight * size


def statistics_loss(norm: nn.BatchNorm1d, latents: Tensor, distance: str) -> Tensor:
    """Eq. 5 for each batch (S,): from the batch's mean and biased variance to the running ones."""
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError("want a BatchNorm with running statistics, got one without")
    mean = latents.mean(1) - norm.running_mean
    variance = latents.var(1, correction=0) - norm.running_var
    return _distance(mean, distance) + _distance(variance, distance)


def _distance(difference: Tensor, distance: str) -> Tensor:
    squared = difference.square().sum(-1)
    return squared if distance == "squared" else squared.clamp_min(1e-24).sqrt()


def labels_for(how: Inversion, share: Tensor, rng: torch.Generator) -> Tensor:
    """Classes (S, B) drawn from the shares (K,)."""
    return torch.multinomial(share, how.batches * how.batch_size, replacement=True, generator=rng).view(how.batches, -1)
