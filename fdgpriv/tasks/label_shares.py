"""Task: estimate the class distribution of an artifact's images."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.metrics.score import jackknife
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.statistics.measured import Measured
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task

_NOISES = 10
_MIN_SPREAD = 1e-9


class LabelShares(Task):
    """A prediction is a distribution over the classes, (K,)."""

    secret = "labels"
    metric = "l1"
    higher_leaks = False
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 2.0)
    perfect = 0.0
    relevant = 0.1
    relative_to: ClassVar[tuple[str, ...]] = ("uniform", "public_shares", "half_uniform", "domain_shares")
    many_singles = True

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((adversary.classes,),)

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """The L1 distance to the true shares."""
        return torch.stack(
            [(p.double() - t.histogram).abs().sum().clamp_max(2) for p, t in zip(predictions, truths, strict=True)]
        )

    def of_set(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Measured]:
        true = torch.stack([truth.histogram for truth in truths]).double()
        return {"r2": r2(torch.stack(list(predictions)).double(), true)}

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random shares, equal shares, shares of the public images, the mean of the last two, and shares of each domain."""
        noise = torch.rand(_NOISES, adversary.classes, generator=rng)
        return {
            "noise": list(noise / noise.sum(1, keepdim=True)),
            "uniform": [torch.full((adversary.classes,), 1 / adversary.classes)],
            "public_shares": [adversary.public_shares],
            "half_uniform": [adversary.hedged_shares],
            **{f"domain_shares:{name}": [shares] for name, shares in adversary.shares_by_domain.items()},
        }

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The mean of equal shares and of those of the adversary's images."""
        return adversary.hedged_shares


def r2(predicted: Tensor, true: Tensor) -> Measured:
    """The share of the variance of `true` (M, K) between artifacts that the predictions (M, K) explain, at most 1.

    The interval is the jackknife's; the value is None if all artifacts have the same shares.
    """
    errors, n = (predicted - true).square().sum(1), len(true)
    centred = true - true.mean(0)
    spread, without = centred.square().sum(), centred.square().sum() - centred.square().sum(1) * n / max(1, n - 1)
    if n < 3 or not without.min() > _MIN_SPREAD:
        return Measured(value=None, reason="the label shares hardly differ", n=n, direction="higher_leaks")
    value = float(1 - errors.sum() / spread)
    ends = jackknife(value, [1 - (errors.sum() - errors) / without])
    return Measured(value=value, ci95=ends, n=n, direction="higher_leaks")


def as_shares(predicted: Tensor, n_images: Tensor) -> Tensor:
    """Distributions (M, K) from predicted shares: not below 0, of sum 1, and of whole images if there are fewer than K.

    For a single image it is the most likely label.

    Args:
        predicted: (M, K) real numbers.
        n_images: (M,) numbers of images.
    """
    shares = predicted.clamp_min(0)
    shares = shares / shares.sum(1, keepdim=True).clamp_min(1e-9)
    fewer_than_classes = n_images < shares.shape[1]
    shares[fewer_than_classes] = _rounded_to_images(shares[fewer_than_classes], n_images[fewer_than_classes])
    return shares


def _rounded_to_images(shares: Tensor, n_images: Tensor) -> Tensor:
    """Shares (M, K) of `n_images` (M,) images, rounded to whole images by the largest-remainder method."""
    counts = shares * n_images[:, None]
    whole_images = counts.floor()
    missing = (n_images - whole_images.sum(1)).round()
    rank = (counts - whole_images).argsort(1, descending=True).argsort(1)
    return (whole_images + (rank < missing[:, None])) / n_images[:, None].clamp_min(1)
