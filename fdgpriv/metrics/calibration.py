"""Expected calibration error of a classifier."""

import torch
from torch import Tensor

from fdgpriv.metrics.score import Score, missing
from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.torchvision_import import torchmetrics


def calibration_error(logits: Tensor, labels: Tensor, bins: int = 15) -> Score:
    """Expected calibration error: the mean distance of confidence from accuracy over bins of confidence.

    Args:
        logits: (N, K).
        labels: (N,) int64 in [0, K).
        bins: Number of equal-width bins of [0, 1].

    Returns: in [0, 1], lower is better; 0 for a calibrated classifier, 1 - accuracy if the confidence is always 1.
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
    return Score(name, Measured(value=float(error), n=n, direction="lower_better"))
