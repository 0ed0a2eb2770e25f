"""Expected calibration error of a classifier."""

import torch
from torch import Tensor

from fdgpriv.metrics.score import Score, jackknife, missing
from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.torchvision_import import torchmetrics


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
    error = torchmetrics.functional.classification.multiclass_calibration_error(
        logits.softmax(dim=1), labels, num_classes=logits.shape[1], n_bins=bins, norm="l1"
    )
    value = float(error)
    low, high = jackknife(value, [_left_out(logits, labels, bins)]) if n > 1 else (0.0, 1.0)
    interval = (max(low, 0.0), min(high, 1.0))
    return Score(name, Measured(value=value, ci95=interval, n=n, direction="lower_better"))


def _left_out(logits: Tensor, labels: Tensor, bins: int) -> Tensor:
    """The error with each of the N samples left out, (N,); bins as torchmetrics has them, one more for confidence 1."""
    confidence, answer = logits.softmax(dim=1).max(dim=1)
    excess = confidence.double() - (answer == labels).double()
    own_bin = torch.bucketize(confidence, torch.linspace(0, 1, bins + 1), right=True) - 1
    sums = torch.zeros(bins + 1, dtype=torch.float64).index_add_(0, own_bin, excess)
    mine = sums[own_bin]
    total = sums.abs().sum() - mine.abs() + (mine - excess).abs()
    return total / (len(labels) - 1)
