"""Style statistics of feature maps, in each of the inequivalent ways that papers and code compute them, and AdaIN.

References: Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017;
Nguyen et al., "PARDON: Privacy-Aware and Robust Federated Domain Generalization" (clusters of images).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.utils.finch import compact, finch

Moments = tuple[Tensor, Tensor]
POOLED_EPS = 1e-5
_PIXELS = 2**21  # of all images that are encoded at once: VGG-19 makes 256 bytes of each pixel in its first layer alone


def averaged(mean: Tensor, std: Tensor) -> Moments:
    """Means and standard deviations (C,), each averaged over images (n, C)."""
    return mean.mean(0), std.mean(0)


def over_pixels(mean: Tensor, std: Tensor, eps: float = POOLED_EPS) -> Moments:
    """Mean and std (C,) over all pixels of all images, from those of each image (n, C), which have equally many pixels."""
    wide = mean.double()
    center = wide.mean(0)
    variance = (std.double().square() + (wide - center).square()).mean(0)
    return center.to(mean.dtype), (variance + eps).sqrt().to(std.dtype)


@dataclass(frozen=True)
class Clustering:
    """FINCH clusters of one client's images, each of which then counts as one image does elsewhere, however large it is.

    Attributes:
        by_maps: Cluster by whole feature maps, as PARDON's released code does; else by mean and std, as its text does.
        coarsest: Take the coarsest of FINCH's partitions; else the finest.
        eps: Added to a cluster's variance before the root.
    """

    by_maps: bool
    coarsest: bool
    eps: float

    def __call__(self, mean: Tensor, std: Tensor, maps: Tensor | None) -> Moments:
        """Mean and std (K, C) float64 over all pixels of each cluster (PARDON Eq. 2), of images' (n, C) and maps (n, D)."""
        if self.by_maps and (maps is None or maps.shape[:1] != mean.shape[:1] or maps.shape[1] == 0):
            came = "none" if maps is None else tuple(maps.shape)
            raise ValueError(f"want the feature maps ({len(mean)}, D) that images are clustered by, got {came}")
        rows = maps if self.by_maps and maps is not None else torch.cat([mean, std], dim=1)
        labels = finch(rows)[-1 if self.coarsest else 0].to(mean.device)
        clusters = [
            over_pixels(mean[labels == k].double(), std[labels == k].double(), self.eps)
            for k in range(int(labels.max()) + 1)
        ]
        return torch.stack([m for m, _ in clusters]), torch.stack([s for _, s in clusters])


@dataclass(frozen=True)
class StyleRule:
    """How a channel's standard deviation is taken, and one style made of many images'.

    Attributes:
        name: What an artifact says of itself.
        unbiased: Divide by HW - 1 instead of HW.
        eps: Added to the variance before the root.
        pool: From each image's mean and std (n, C), those of all together (C,).
        clustering: Pool clusters of images instead of images.
    """

    name: str
    unbiased: bool
    eps: float
    pool: Callable[[Tensor, Tensor], Moments] = averaged
    clustering: Clustering | None = None

    def __call__(self, features: Tensor) -> Moments:
        """Mean and std (B, C) of each channel of each image's features (B, C, H, W)."""
        if features.ndim != 4:
            raise ValueError(f"want features (B, C, H, W), got {tuple(features.shape)}")
        pixels = features.permute(0, 2, 3, 1).flatten(1, 2)  # two passes: several times faster than torch.var_mean here
        mean = pixels.mean(1)
        variance = (pixels - mean[:, None]).square().sum(1) / (pixels.shape[1] - int(self.unbiased))
        return mean, (variance + self.eps).sqrt()

    def maps(self, features: Tensor) -> Tensor:
        """What images are clustered by besides their styles: flattened features (B, CHW), or nothing (B, 0)."""
        rows = features.flatten(1)
        return rows if self.clustering is not None and self.clustering.by_maps else rows[:, :0]

    def combine(self, mean: Tensor, std: Tensor, maps: Tensor | None = None) -> Moments:
        """One mean and std (C,) of images whose own are (n, C) and whose `maps` are (n, D)."""
        if self.clustering is None:
            return self.pool(mean, std)
        pooled_mean, pooled_std = self.pool(*self.clustering(mean, std, maps))
        return pooled_mean.to(mean.dtype), pooled_std.to(std.dtype)


PER_IMAGE_UNBIASED = StyleRule("per_image_unbiased", unbiased=True, eps=1e-5)  # AdaIN content side
DASSL = StyleRule("dassl", unbiased=True, eps=1e-6)  # MixStyle, DSU, StableFDG's released code
PAPER = StyleRule("paper", unbiased=False, eps=0.0)  # StableFDG Eq. 1
PAPER_EPS = StyleRule("paper_eps", unbiased=False, eps=1e-6)  # Eq. 1, safe for dead channels: what we train with
POOLED = StyleRule("pooled_biased", unbiased=False, eps=0.0, pool=over_pixels)  # CCST Eq. 8


def pooled_style(features: Tensor) -> Moments:
    """Mean and std (C,) over all images and pixels of features (B, C, H, W): the rule ``pooled_biased`` of CCST."""
    return over_pixels(*POOLED(features))


def adain(
    features: Tensor, mean: Tensor, std: Tensor, rule: StyleRule = PAPER_EPS, own: Moments | None = None
) -> Tensor:
    """Features (B, C, H, W) with each channel's own mean and std replaced by `mean` and `std`, (C,) or (B, C).

    `own` are the features' moments by `rule`, where they are known already.
    """
    own_mean, own_std = rule(features) if own is None else own
    scale = std / own_std
    shift = mean - own_mean * scale
    return features * scale[..., None, None] + shift[..., None, None]


def clustered(by_maps: bool, coarsest: bool, mixture: bool) -> StyleRule:
    """PARDON's client style: the std of an even mixture of the clusters, or the mean of their stds."""
    name = f"finch_{'last' if coarsest else 'first'}_{'maps' if by_maps else 'styles'}"
    name += "_mixture" if mixture else "_mean_of_std"
    clustering = Clustering(by_maps, coarsest, eps=0.0 if mixture else POOLED_EPS)
    return StyleRule(name, unbiased=False, eps=0.0, pool=over_pixels if mixture else averaged, clustering=clustering)


_ALL = (False, True)
CLUSTERED = tuple(clustered(by_maps, coarsest, mixture) for by_maps in _ALL for coarsest in _ALL for mixture in _ALL)
RULES = {rule.name: rule for rule in (PER_IMAGE_UNBIASED, DASSL, PAPER, PAPER_EPS, POOLED, *CLUSTERED)}


def at_once(height: int, width: int, most: int = 256) -> int:
    """How many images of this size are encoded at once: few enough that their feature maps fit in memory."""
    return max(1, min(most, _PIXELS // (height * width)))


def in_parts(images: Tensor) -> tuple[Tensor, ...]:
    """Images (N, 3, H, W) in parts, each of as many as are encoded at once."""
    parts: tuple[Tensor, ...] = images.split(at_once(*images.shape[-2:]))
    return parts


@torch.no_grad()
def styles_of(images: Tensor, features: Callable[[Tensor], Tensor], rule: StyleRule) -> tuple[Tensor, Tensor]:
    """Mean and std (N, C) of the features of images (N, 3, H, W), in parts that fit in memory."""
    mean, std = (torch.cat(part) for part in zip(*(rule(features(some)) for some in in_parts(images)), strict=True))
    return mean, std


@torch.no_grad()
def maps_of(images: Tensor, features: Callable[[Tensor], Tensor], rule: StyleRule) -> Tensor:
    """What the rule clusters images (N, 3, H, W) by besides their styles, (N, D) with D <= N; D is 0 where it does not."""
    if rule.clustering is None or not rule.clustering.by_maps:
        return images.new_empty(len(images), 0)
    return compact(torch.cat([rule.maps(features(some)) for some in in_parts(images)]))


@torch.no_grad()
def styles_and_maps_of(
    images: Tensor, features: Callable[[Tensor], Tensor], rule: StyleRule
) -> tuple[Tensor, Tensor, Tensor]:
    """As `styles_of`, and `maps_of` in the same pass."""
    parts = [(*rule(made), rule.maps(made)) for part in in_parts(images) for made in [features(part)]]
    mean, std, maps = (torch.cat(part) for part in zip(*parts, strict=True))
    return mean, std, compact(maps)
