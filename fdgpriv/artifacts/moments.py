"""Style statistics of feature maps in the inequivalent definitions of papers and released code, and AdaIN.

References: Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017;
Nguyen et al., "PARDON: Privacy-Aware and Robust Federated Domain Generalization" (clusters of images).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.utils.finch import compact, finch

Moments = tuple[Tensor, Tensor]
POOLED_EPS = 1e-5
_PIXELS = 2**18  # pixels per encoded batch: 256 images of 32 px; the first layer of VGG-19 needs 256 bytes per pixel


def averaged(mean: Tensor, std: Tensor) -> Moments:
    """Means and standard deviations (C,), each averaged over images (n, C)."""
    return mean.mean(0), std.mean(0)


def over_pixels(mean: Tensor, std: Tensor, eps: float = POOLED_EPS) -> Moments:
    """Mean and std (C,) over all pixels of all images, from those of each image (n, C); images have equal sizes."""
    wide = mean.double()
    center = wide.mean(0)
    variance = (std.double().square() + (wide - center).square()).mean(0)
    return center.to(mean.dtype), (variance + eps).sqrt().to(std.dtype)


@dataclass(frozen=True)
class Clustering:
    """FINCH clustering of one client's images; clusters have equal weight, whatever their size.

    Attributes:
        by_maps: Cluster whole feature maps, as in PARDON's released code; else mean and std, as in its text.
        coarsest: Use the coarsest of FINCH's partitions; else the finest.
        eps: Added to a cluster's variance before the root.
    """

    by_maps: bool
    coarsest: bool
    eps: float

    def __call__(self, mean: Tensor, std: Tensor, maps: Tensor | None) -> Moments:
        """Mean and std (K, C) float64 over all pixels of each cluster (PARDON Eq. 2).

        Args:
            mean: Of each image, (n, C).
            std: Of each image, (n, C).
            maps: (n, D) feature maps, needed if `by_maps`.
        """
        if self.by_maps and (maps is None or maps.shape[:1] != mean.shape[:1] or maps.shape[1] == 0):
            shape = "none" if maps is None else tuple(maps.shape)
            raise ValueError(f"want the feature maps ({len(mean)}, D) that images are clustered by, got {shape}")
        rows = maps if self.by_maps and maps is not None else torch.cat([mean, std], dim=1)
        labels = finch(rows)[-1 if self.coarsest else 0].to(mean.device)
        clusters = [
            over_pixels(mean[labels == k].double(), std[labels == k].double(), self.eps)
            for k in range(int(labels.max()) + 1)
        ]
        return torch.stack([m for m, _ in clusters]), torch.stack([s for _, s in clusters])


@dataclass(frozen=True)
class StyleRule:
    """A definition of style statistics: each image's standard deviation, and the pooling over images.

    Attributes:
        name: Stored in artifacts.
        unbiased: Divide by HW - 1 instead of HW.
        eps: Added to the variance before the root.
        pool: Pools the images' mean and std (n, C) to (C,).
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
        pixels = features.permute(0, 2, 3, 1).flatten(1, 2)  # two passes; several times faster than torch.var_mean
        mean = pixels.mean(1)
        variance = (pixels - mean[:, None]).square().sum(1) / (pixels.shape[1] - int(self.unbiased))
        return mean, (variance + self.eps).sqrt()

    def maps(self, features: Tensor) -> Tensor:
        """Flattened features (B, CHW) if images are clustered by them, else empty (B, 0)."""
        rows = features.flatten(1)
        return rows if self.clustering is not None and self.clustering.by_maps else rows[:, :0]

    def combine(self, mean: Tensor, std: Tensor, maps: Tensor | None = None) -> Moments:
        """Pooled mean and std (C,) from the images' mean and std (n, C) and their `maps` (n, D)."""
        if self.clustering is None:
            return self.pool(mean, std)
        pooled_mean, pooled_std = self.pool(*self.clustering(mean, std, maps))
        return pooled_mean.to(mean.dtype), pooled_std.to(std.dtype)


PER_IMAGE_UNBIASED = StyleRule("per_image_unbiased", unbiased=True, eps=1e-5)  # AdaIN content side
DASSL = StyleRule("dassl", unbiased=True, eps=1e-6)  # MixStyle, DSU, StableFDG's released code
PAPER = StyleRule("paper", unbiased=False, eps=0.0)  # StableFDG Eq. 1
PAPER_EPS = StyleRule("paper_eps", unbiased=False, eps=1e-6)  # Eq. 1, stable for dead channels; used in training
POOLED = StyleRule("pooled_biased", unbiased=False, eps=0.0, pool=over_pixels)  # CCST Eq. 8


def pooled_style(features: Tensor) -> Moments:
    """Mean and std (C,) over all images and pixels of features (B, C, H, W): the rule ``pooled_biased`` of CCST."""
    return over_pixels(*POOLED(features))


def adain(
    features: Tensor, mean: Tensor, std: Tensor, rule: StyleRule = PAPER_EPS, own: Moments | None = None
) -> Tensor:
    """Features (B, C, H, W) with each channel's mean and std replaced by `mean` and `std`, (C,) or (B, C).

    `own` are the features' moments by `rule` if already computed.
    """
    own_mean, own_std = rule(features) if own is None else own
    scale = std / own_std
    shift = mean - own_mean * scale
    return features * scale[..., None, None] + shift[..., None, None]


def clustered(by_maps: bool, coarsest: bool, mixture: bool) -> StyleRule:
    """PARDON's client style: the std of an equal-weight mixture of the clusters, or the mean of their stds."""
    name = f"finch_{'last' if coarsest else 'first'}_{'maps' if by_maps else 'styles'}"
    name += "_mixture" if mixture else "_mean_of_std"
    clustering = Clustering(by_maps, coarsest, eps=0.0 if mixture else POOLED_EPS)
    return StyleRule(name, unbiased=False, eps=0.0, pool=over_pixels if mixture else averaged, clustering=clustering)


_ALL = (False, True)
CLUSTERED = tuple(clustered(by_maps, coarsest, mixture) for by_maps in _ALL for coarsest in _ALL for mixture in _ALL)
RULES = {rule.name: rule for rule in (PER_IMAGE_UNBIASED, DASSL, PAPER, PAPER_EPS, POOLED, *CLUSTERED)}


def at_once(height: int, width: int, most: int = 256) -> int:
    """Batch size for encoding images of this size, so that the feature maps fit in memory; at most `most`."""
    return max(1, min(most, _PIXELS // (height * width)))


def in_parts(images: Tensor) -> tuple[Tensor, ...]:
    """Images (N, 3, H, W) split into encoding batches."""
    parts: tuple[Tensor, ...] = images.split(at_once(*images.shape[-2:]))
    return parts


@torch.no_grad()
def styles_of(images: Tensor, features: Callable[[Tensor], Tensor], rule: StyleRule) -> tuple[Tensor, Tensor]:
    """Mean and std (N, C) of the features of images (N, 3, H, W), computed in batches."""
    mean, std = (torch.cat(part) for part in zip(*(rule(features(batch)) for batch in in_parts(images)), strict=True))
    return mean, std


@torch.no_grad()
def maps_of(images: Tensor, features: Callable[[Tensor], Tensor], rule: StyleRule) -> Tensor:
    """The rule's clustering features (N, D), D <= N, of images (N, 3, H, W); D is 0 if it clusters no feature maps."""
    if rule.clustering is None or not rule.clustering.by_maps:
        return images.new_empty(len(images), 0)
    return compact(torch.cat([rule.maps(features(batch)) for batch in in_parts(images)]))


@torch.no_grad()
def styles_and_maps_of(
    images: Tensor, features: Callable[[Tensor], Tensor], rule: StyleRule
) -> tuple[Tensor, Tensor, Tensor]:
    """`styles_of` and `maps_of` in one pass."""
    parts = [(*rule(encoded), rule.maps(encoded)) for batch in in_parts(images) for encoded in [features(batch)]]
    mean, std, maps = (torch.cat(part) for part in zip(*parts, strict=True))
    return mean, std, compact(maps)


def stacked(moments: Sequence[Moments]) -> Moments:
    """Means and variances (G, C) of G moments (C,)."""
    return torch.stack([mean for mean, _ in moments]), torch.stack([variance for _, variance in moments])
