"""Task: estimate the class distribution of an artifact's images."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.targets.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Predictions, Task

_NOISES = 10


class LabelShares(Task):
    """A prediction is a distribution over the classes, (K,)."""

    secret = "labels"
    metric = "l1"
    higher_leaks = False
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 2.0)
    relevant = 0.1
    right_or_wrong = True
    relative = True

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """The L1 distance to the true shares."""
        return torch.stack(
            [(p.double() - t.histogram).abs().sum().clamp_max(2) for p, t in zip(predictions, truths, strict=True)]
        )

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random shares, and those of the public images."""
        noise = torch.rand(_NOISES, adversary.classes, generator=rng)
        return {"noise": list(noise / noise.sum(1, keepdim=True)), "mean_image": [adversary.public_shares]}

    def unaided(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The share of each class among its own images."""
        return adversary.public_shares


def as_shares(predicted: Tensor, n_images: Tensor) -> Tensor:
    """Distributions (M, K) from predicted shares: cut at 0, of sum 1, and whole images where there are fewer than labels.

    Of a single image that is the most likely label.

    Args:
        predicted: (M, K) real numbers.
        n_images: (M,) how many images each is of.
    """
    found = predicted.clamp_min(0)
    found = found / found.sum(1, keepdim=True).clamp_min(1e-9)
    few = n_images < found.shape[1]
    found[few] = _of_whole_images(found[few], n_images[few])
    return found


def _of_whole_images(shares: Tensor, n_images: Tensor) -> Tensor:
    """Shares (M, K) rounded to whole images of `n_images` (M,), those of the largest remainders up."""
    counts = shares * n_images[:, None]
    whole = counts.floor()
    left = (n_images - whole.sum(1)).round()
    rank = (counts - whole).argsort(1, descending=True).argsort(1)
    return (whole + (rank < left[:, None])) / n_images[:, None].clamp_min(1)
