"""What a metric of a set of images returns: a figure under its own name; and checks of the images."""

from typing import NamedTuple

from torch import Tensor

from fdgpriv.statistics.measured import Direction, Measured


class Score(NamedTuple):
    """A figure and the name it goes by, which tells the network that it rests on.

    Attributes:
        name: For example ``"psnr"`` or ``"kid[digits-extractor-1:0a1b2c3d]"``.
        measured: Value, interval, n and direction; or no value, and the reason.
    """

    name: str
    measured: Measured

    @property
    def value(self) -> float | None:
        """The figure; None where `measured.reason` says why there is none."""
        return self.measured.value


def missing(name: str, direction: Direction, n: int, reason: str) -> Score:
    """A score without a value, and why."""
    return Score(name, Measured(value=None, n=n, direction=direction, reason=reason))


def jackknife(value: float, left_out: list[Tensor]) -> tuple[float, float]:
    """A 95% normal interval around `value` from the values found with each sample left out in turn.

    Args:
        value: With all samples.
        left_out: Per independent set of samples, (N,) values with one of its samples left out, N of at least 2.

    Reference: Efron and Stein, "The jackknife estimate of variance", Annals of Statistics 9, 1981.
    """
    variance = sum(float((v - v.mean()).square().sum()) * (len(v) - 1) / len(v) for v in left_out)
    half = 1.959963984540054 * variance**0.5
    return value - half, value + half


def check_images(images: Tensor) -> None:
    """Refuses what is not images (N, 3, H, W) in [0, 1]; NaN and infinity pass, for the metric to tell of."""
    if images.ndim != 4 or images.shape[1] != 3 or not images.is_floating_point():
        raise ValueError(f"want float images (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
    if not images.numel():
        return
    low, high = images.aminmax()
    if not (low.isfinite() and high.isfinite()):
        known = images[images.isfinite()]
        if not known.numel():
            return
        low, high = known.aminmax()
    if low < -1e-4 or high > 1 + 1e-4:
        raise ValueError(f"want images in [0, 1], got [{float(low):.4g}, {float(high):.4g}]")


def check_pairs(images: Tensor, truth: Tensor) -> None:
    """Refuses what are not pairs of images (N, 3, H, W) in [0, 1]."""
    if images.shape != truth.shape:
        raise ValueError(f"want one true image per image, got {tuple(images.shape)} and {tuple(truth.shape)}")
    check_images(images)
    check_images(truth)
