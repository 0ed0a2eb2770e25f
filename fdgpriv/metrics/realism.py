"""FID, KID and IS: realism of a *set* of images. They do not measure privacy leakage.

The name of each score contains the extractor's name and the first digits of its weights' hash, since scores in the
features of different networks are not comparable.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fdgpriv.metrics.score import Score, check_images, jackknife, missing
from fdgpriv.models.extractor import Extractor
from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.global_rng import global_draws
from fdgpriv.utils.torchvision_import import torchmetrics_fid, torchmetrics_inception, torchmetrics_kid
from fdgpriv.utils.warnings_filter import warnings_ignored

FID_MINIMUM = 2048  # images; with fewer, the bias of FID dominates
_BATCH = 64
_SIDE = 32  # pixels
_TOLERANCE = 1e-6


def fid(images: Tensor, reference: Tensor, extractor: Extractor) -> Score:
    """Frechet distance between Gaussians fitted to two sets of features.

    Args:
        images: (N, 3, H, W) in [0, 1].
        reference: Real images (M, 3, H, W) in [0, 1]; use M = N.
        extractor: Gives the features.

    Returns: at least 0, lower is more real; no value below 2,048 images on either side, where the bias dominates. n is
        the smaller count.
    Reference: Heusel et al., "GANs trained by a two time-scale update rule ...", NeurIPS 2017.
    """
    name = f"fid[{extractor.label}]"
    n = min(len(images), len(reference))
    if n < FID_MINIMUM:
        return missing(name, "lower_better", n, f"{n:,} images: FID needs {FID_MINIMUM:,} on either side; see KID")
    return _fid(name, features(images, extractor), features(reference, extractor), n)


def small_fid(images: Tensor, reference: Tensor, extractor: Extractor) -> Score:
    """FID of two or more images, without the minimum of `fid`; small sets give a large bias.

    Compare it only between sets of equal size, and with the value of real images. Otherwise as `fid`.
    """
    name, n = f"small_fid[{extractor.label}]", min(len(images), len(reference))
    if n < 2:
        return missing(name, "lower_better", n, f"{n} images: a covariance needs 2")
    return _fid(name, features(images, extractor), features(reference, extractor), n)


def resized(images: Tensor) -> Tensor:
    """Images (N, 3, H, W) resized to 32 px, the input size of the digits extractor."""
    if images.shape[-1] == _SIDE:
        return images
    return functional.interpolate(images, size=(_SIDE, _SIDE), mode="bilinear", antialias=True).clamp(0, 1)


def kid(images: Tensor, reference: Tensor, extractor: Extractor, rng: torch.Generator) -> Score:
    """Kernel inception distance: unbiased squared maximum mean discrepancy with the kernel (x.y / d + 1)^3.

    The larger set is subsampled at random to the size of the smaller one. The interval is a jackknife over both sets.

    Args:
        images: (N, 3, H, W) in [0, 1], N >= 3.
        reference: Real images (M, 3, H, W) in [0, 1], M >= 3.
        extractor: Gives the features.
        rng: For the subsampling.

    Returns: lower is more real; expectation 0 for two samples of one distribution, so negative values occur.
    Reference: Binkowski et al., "Demystifying MMD GANs", ICLR 2018.
    """
    name = f"kid[{extractor.label}]"
    n = min(len(images), len(reference))
    if n < 3:
        return missing(name, "lower_better", n, f"{n} images: KID and its interval need 3 on either side")
    generated = features(images, extractor)[torch.randperm(len(images), generator=rng)[:n]]
    real = features(reference, extractor)[torch.randperm(len(reference), generator=rng)[:n]]
    if not (generated.isfinite().all() and real.isfinite().all()):
        return missing(name, "lower_better", n, "features that are not finite")
    with warnings_ignored(UserWarning):  # it warns that it stores all features
        metric = torchmetrics_kid.KernelInceptionDistance(feature=_Identity(generated), subsets=1, subset_size=n)
    metric.update(real, real=True)
    metric.update(generated, real=False)
    value = float(_repeatably(metric.compute)[0])
    interval = jackknife(value, _kid_left_out(generated, real))
    return Score(name, Measured(value=value, ci95=interval, n=n, direction="lower_better"))


def inception_score(images: Tensor, extractor: Extractor) -> dict[str, Score]:
    """Inception score, exp of the mean KL divergence between p(y|x) and p(y), in one split; also its log and IS/K.

    Args:
        images: (N, 3, H, W) in [0, 1].
        extractor: Classifier with K classes; its softmax is p(y|x).

    Returns: ``is`` in [1, K] (checked; 1 for identical images), ``log_is`` in [0, ln K] nats and ``is_over_k`` in
        [1/K, 1]; published "IS" below 1 is one of the latter two. Higher is more real. Intervals are jackknife.
    Reference: Salimans et al., "Improved techniques for training GANs", NeurIPS 2016.
    """
    names = {key: f"{key}[{extractor.label}]" for key in ("is", "log_is", "is_over_k")}
    n, classes = len(images), extractor.classes
    if n < 2:
        return {key: missing(name, "higher_better", n, f"{n} images: IS needs 2") for key, name in names.items()}
    logits = _in_batches(images, extractor, extractor.logits)
    if not logits.isfinite().all():
        return {key: missing(name, "higher_better", n, "logits not finite") for key, name in names.items()}
    logits = (logits - logits.amax(dim=1, keepdim=True)).clamp_min(-600)  # avoids probabilities of 0
    with warnings_ignored(UserWarning):  # it warns about memory and about the std of one split
        metric = torchmetrics_inception.InceptionScore(feature=_Identity(logits), splits=1)
        metric.update(logits)
        value = float(_repeatably(metric.compute)[0])
    if not 1 - _TOLERANCE <= value <= classes + _TOLERANCE:
        raise ArithmeticError(f"want an inception score in [1, {classes}], got {value}")
    log_value = math.log(min(max(value, 1.0), classes))
    interval = jackknife(log_value, [_log_is_left_out(logits)])
    ends = torch.tensor([log_value, *interval], dtype=torch.float64).clamp(0.0, math.log(classes))
    figures = {"is": ends.exp(), "log_is": ends, "is_over_k": ends.exp() / classes}
    return {
        key: Score(
            names[key],
            Measured(value=float(v), ci95=(float(a), float(b)), n=n, direction="higher_better"),
        )
        for key, (v, a, b) in figures.items()
    }


def features(images: Tensor, extractor: Extractor) -> Tensor:
    """Features (N, num_features) float64 of images (N, 3, H, W) in [0, 1], in batches, in evaluation mode."""
    return _in_batches(images, extractor, extractor)


class _Identity(nn.Module):
    """Replaces the extractor inside torchmetrics: returns its input, precomputed features."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.num_features = given.shape[1]

    def forward(self, given: Tensor) -> Tensor:
        return given


@torch.no_grad()
def _in_batches(images: Tensor, extractor: Extractor, read: Callable[[Tensor], Tensor]) -> Tensor:
    check_images(images)
    if extractor.training:
        raise ValueError(f"want {extractor.name} in evaluation mode, got training mode")
    return torch.cat([read(part).double().cpu() for part in torch.split(images, _BATCH)])


def _fid(name: str, generated: Tensor, real: Tensor, n: int) -> Score:
    if not (generated.isfinite().all() and real.isfinite().all()):
        return missing(name, "lower_better", n, "features that are not finite")
    metric = torchmetrics_fid.FrechetInceptionDistance(feature=_Identity(generated))
    metric.update(real, real=True)
    metric.update(generated, real=False)
    value = float(metric.compute())
    if not value > -1e-3:  # rounding in the root of the product of covariances
        return missing(name, "lower_better", n, f"the covariances have no usable root: {value}")
    return Score(name, Measured(value=max(value, 0.0), n=n, direction="lower_better"))


def _repeatably(compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Runs `compute` with a fixed seed of the global generator, with which torchmetrics shuffles."""
    with global_draws():
        return compute()


def _kid_left_out(generated: Tensor, real: Tensor) -> list[Tensor]:
    """KID with each image (N,) and with each real image (N,) left out."""
    n = len(generated)
    within = [torchmetrics_kid.poly_kernel(x, x) for x in (generated, real)]
    within = [kernel - kernel.diag().diag() for kernel in within]
    across = torchmetrics_kid.poly_kernel(generated, real)
    pairs = n * (n - 1)
    left_out = []
    for side, other, cross in ((0, 1, across), (1, 0, across.T)):
        mine = (within[side].sum() - 2 * within[side].sum(1)) / ((n - 1) * (n - 2))
        between = (across.sum() - cross.sum(1)) / (n * (n - 1))
        left_out.append(mine + within[other].sum() / pairs - 2 * between)
    return left_out


def _log_is_left_out(logits: Tensor) -> Tensor:
    """log IS with each image left out, (N,)."""
    p = logits.softmax(dim=1)
    negative_entropy: Tensor = -torch.special.entr(p).sum(1)  # sum p log p
    n = len(p)
    mean = (p.sum(0) - p) / (n - 1)
    spread: Tensor = torch.special.entr(mean.clamp_min(0)).sum(1)
    return (negative_entropy.sum() - negative_entropy) / (n - 1) + spread
