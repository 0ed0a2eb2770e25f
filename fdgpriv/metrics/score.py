"""Result type of image metrics, jackknife intervals, and checks of their inputs."""

from typing import NamedTuple

from torch import Tensor

from fdgpriv.statistics.measured import Direction, Measured


class Score(NamedTuple):
    """A metric's value and name, which includes the feature network.

    Attributes:
        name: For example ``"psnr"`` or ``"kid[digits-extractor-1:0a1b2c3d]"``.
        measured: Value, interval, n and direction; or no value and the reason.
    """

    name: str
    measured: Measured

    @property
    def value(self) -> float | None:
        """The value; None if there is none, see `measured.reason`."""
        return self.measured.value


def missing(name: str, direction: Direction, n: int, reason: str) -> Score:
    """A score without a value, with the reason."""
    return Score(name, Measured(value=None, n=n, direction=direction, reason=reason))


def jackknife(value: float, left_out: list[Tensor]) -> tuple[float, float]:
    """A 95% normal confidence interval around `value` from leave-one-out values.

    Args:
        value: With all samples.
        left_out: For each independent set of N >= 2 samples, the (N,) values with one sample left out.

    Reference: Efron and Stein, "The jackknife estimate of variance", Annals of Statistics 9, 1981.
    """
    variance = sum(float((v - v.mean()).square().sum()) * (len(v) - 1) / len(v) for v in left_out)
    half = 1.959963984540054 * variance**0.5
    return value - half, value + half


def check_images(images: Tensor) -> None:
    """Raises ValueError unless `images` are (N, 3, H, W) in [0, 1]; NaN and infinity pass, metrics report them."""
    if images.ndim != 4 or images.shape[1] != 3 or not images.is_floating_point():
        raise ValueError(f"want float images (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
    if not images.numel():
        return
    low, high = images.aminmax()
    if not (low.isfinite() and high.isfinite()):
        finite = images[images.isfinite()]
        if not finite.numel():
            return
        low, high = finite.aminmax()
    if low < -1e-4 or high > 1 + 1e-4:
        raise ValueError(f"want images in [0, 1], got [{float(low):.4g}, {float(high):.4g}]")


def check_pairs(images: Tensor, truth: Tensor) -> None:
    """Raises ValueError unless both are images (N, 3, H, W) in [0, 1] of one shape."""
    if images.shape != truth.shape:
        raise ValueError(f"want one true image per image, got {tuple(images.shape)} and {tuple(truth.shape)}")
    check_images(images)
    check_images(truth)
