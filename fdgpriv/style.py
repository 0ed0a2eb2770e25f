"""Style statistics of feature maps, in each of the inequivalent ways that papers and code compute them, and AdaIN.

Reference: Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Moments = tuple[Tensor, Tensor]
POOLED_EPS = 1e-5


def averaged(mean: Tensor, std: Tensor) -> Moments:
    """Means and standard deviations (C,), each averaged over images (n, C)."""
    return mean.mean(0), std.mean(0)


def over_pixels(mean: Tensor, std: Tensor) -> Moments:
    """Mean and std (C,) over all pixels of all images, from those of each image (n, C), which have equally many pixels."""
    wide = mean.double()
    center = wide.mean(0)
    variance = (std.double().square() + (wide - center).square()).mean(0)
    return center.to(mean.dtype), (variance + POOLED_EPS).sqrt().to(std.dtype)


@dataclass(frozen=True)
class StyleRule:
    """How a channel's standard deviation is taken, and one style made of many images'.

    Attributes:
        name: What an artifact says of itself.
        unbiased: Divide by HW - 1 instead of HW.
        eps: Added to the variance before the root.
        pool: From each image's mean and std (n, C), those of all together (C,).
    """

    name: str
    unbiased: bool
    eps: float
    pool: Callable[[Tensor, Tensor], Moments] = averaged

    def __call__(self, features: Tensor) -> Moments:
        """Mean and std (B, C) of each channel of each image's features (B, C, H, W)."""
        if features.ndim != 4:
            raise ValueError(f"want features (B, C, H, W), got {tuple(features.shape)}")
        pixels = features.permute(0, 2, 3, 1).flatten(1, 2)  # two passes: several times faster than torch.var_mean here
        mean = pixels.mean(1)
        variance = (pixels - mean[:, None]).square().sum(1) / (pixels.shape[1] - int(self.unbiased))
        return mean, (variance + self.eps).sqrt()


PER_IMAGE_UNBIASED = StyleRule("per_image_unbiased", unbiased=True, eps=1e-5)  # AdaIN content side
DASSL = StyleRule("dassl", unbiased=True, eps=1e-6)  # MixStyle, DSU, StableFDG's released code
PAPER = StyleRule("paper", unbiased=False, eps=0.0)  # StableFDG Eq. 1
PAPER_EPS = StyleRule("paper_eps", unbiased=False, eps=1e-6)  # Eq. 1, safe for dead channels: what we train with
POOLED = StyleRule("pooled_biased", unbiased=False, eps=0.0, pool=over_pixels)  # CCST Eq. 8


def pooled_style(features: Tensor) -> Moments:
    """Mean and std (C,) over all images and pixels of features (B, C, H, W): the rule ``pooled_biased`` of CCST."""
    return over_pixels(*POOLED(features))


def adain(features: Tensor, mean: Tensor, std: Tensor, rule: StyleRule = PAPER_EPS) -> Tensor:
    """Features (B, C, H, W) with each channel's own mean and std replaced by `mean` and `std`, (C,) or (B, C)."""
    own_mean, own_std = rule(features)
    scale = std / own_std
    shift = mean - own_mean * scale
    return features * scale[..., None, None] + shift[..., None, None]


RULES = {rule.name: rule for rule in (PER_IMAGE_UNBIASED, DASSL, PAPER, PAPER_EPS, POOLED)}
