"""Expected calibration error of a classifier."""

import torch
from torch import Tensor

from fdgpriv.metrics.score import Score, jackknife, missing
from fdgpriv.statistics.measured import Measured


def calibration_error(logits: Tensor, labels: Tensor, bins: int = 15) -> Score:
    """Expected calibration error: the mean distance of confidence from accuracy over bins of confidence.

    Args:
        logits: (N, K).
        labels: (N,) int64 in [0, K).
        bins: Number of equal-width bins of [0, 1].

    Returns: in [0, 1], lower is better; 0 for a calibrated classifier, 1 - accuracy if the confidence is always 1. The
        interval is a jackknife over samples, from two on. The estimate is biased upwards, by about the square root of
        bins / N for a calibrated classifier (.1 for 60 samples, .02 for 2,000), and so is its interval: it covers a true
        error of .05 and more, and misses 0 more often than not.
    Reference: Guo et al., "On calibration of modern neural networks", ICML 2017.
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"want logits (N, K) and labels (N,), got {tuple(logits.shape)} and {tuple(labels.shape)}")
    name, n = "calibration_error", len(logits)
    if n == 0:
        return missing(name, "lower_better", 0, "no samples")
    if not torch.isfinite(logits).all():
        return missing(name, "lower_better", n, "logits that are not finite")
    excess, own_bin = _excess(logits, labels, bins)
    value = float(_sums(excess, own_bin, bins).abs().sum()) / n
    low, high = jackknife(value, [_left_out(excess, own_bin, bins)]) if n > 1 else (0.0, 1.0)
    interval = (max(low, 0.0), min(high, 1.0))
    return Score(name, Measured(value=value, ci95=interval, n=n, direction="lower_better"))


def _excess(logits: Tensor, labels: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Confidence minus correctness (N,) of each sample, and its bin (N,) of ((m - 1) / bins, m / bins], m from 1 on.

    torchmetrics puts confidence 1 into a bin of its own.
    """
    confidence, answer = logits.double().softmax(dim=1).max(dim=1)
    own_bin = (confidence * bins).ceil().long().clamp(1, bins) - 1
    return confidence - (answer == labels).double(), own_bin


def _sums(excess: Tensor, own_bin: Tensor, bins: int) -> Tensor:
    """The sum of each bin, (bins,)."""
    return torch.zeros(bins, dtype=torch.float64).index_add_(0, own_bin, excess)


def _left_out(excess: Tensor, own_bin: Tensor, bins: int) -> Tensor:
    """The error with each of the N samples left out, (N,)."""
    sums = _sums(excess, own_bin, bins)
    mine = sums[own_bin]
    total = sums.abs().sum() - mine.abs() + (mine - excess).abs()
    return total / (len(excess) - 1)
