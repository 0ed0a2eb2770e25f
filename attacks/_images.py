"""Scores of reconstructed images against the true ones, shared by every reconstruction attack."""

from collections.abc import Iterator, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fdgpriv.exam import Guess, Truth
from fdgpriv.federation import generator
from fdgpriv.finding import Measured
from fdgpriv.metrics.perceptual import FormulaLpips, extractor_lpips
from fdgpriv.metrics.pixels import psnr_per_image, ssim_per_image
from fdgpriv.metrics.realism import fid, inception_score, kid
from fdgpriv.models.extractor import digits_extractor

EXACT_DB = 60.0  # stands for an exact match, and for anything nearer than an error of 1e-3
_FEW = 1  # images behind one artifact that SSIM and LPIPS are taken on
_TOGETHER = 64
_SIDE = 32  # pixels, of the images that the extractor was trained on


def psnr(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
    """Mean PSNR (M,) in decibels of each guessed image against the images behind its artifact, at most EXACT_DB."""
    return _paired(guesses, truths, None, lambda a, b: psnr_per_image(a, b).values.clamp_max(EXACT_DB))


def ssim(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
    """Mean SSIM (M,) of each guessed image against the first image behind its artifact."""
    return _paired(guesses, truths, _FEW, lambda a, b: ssim_per_image(a, b, torch.float32).values)


def lpips(guesses: Sequence[Guess], truths: Sequence[Truth]) -> tuple[str, Tensor]:
    """The name of the perceptual distance, and its mean (M,) as for `ssim`."""
    network = _scorer()
    return network.name, _paired(guesses, truths, _FEW, lambda a, b: _distances(network, a, b))


def identified(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
    """Whether (M,) the nearest image of the first line-up, by squared error, is the true one."""
    hits = [
        float((truth.line_up - guess).square().mean(dim=(1, 2, 3)).argmin() == truth.positions[0])
        for guess, truth in zip(guesses, truths, strict=True)
    ]
    return torch.tensor(hits)


def realism(guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Measured]:
    """KID, FID and IS of the guessed images as a set, where each stands for one image; resized to the extractor's 32 px."""
    if any(len(truth.images) != 1 for truth in truths):
        return {}
    extractor = digits_extractor()
    images, reference = _resized(torch.stack(list(guesses))), _resized(torch.cat([truth.images for truth in truths]))
    found = [fid(images, reference, extractor), kid(images, reference, extractor, generator(0))]
    found += inception_score(images, extractor).values()
    return {score.name: score.measured for score in found}


def _resized(images: Tensor) -> Tensor:
    if images.shape[-1] == _SIDE:
        return images
    return interpolate(images, size=(_SIDE, _SIDE), mode="bilinear", antialias=True).clamp(0, 1)


@cache
def _scorer() -> FormulaLpips:
    return extractor_lpips(digits_extractor())


@torch.no_grad()
def _distances(network: FormulaLpips, images: Tensor, truth: Tensor) -> Tensor:
    found: Tensor = network(2 * images - 1, 2 * truth - 1)
    return found


def _paired(guesses: Sequence[Guess], truths: Sequence[Truth], few: int | None, metric: object) -> Tensor:
    assert callable(metric)
    means = []
    for images, truth, counts in _pairs(guesses, truths, few):
        means += [part.double().mean() for part in metric(images, truth).split(counts)]
    return torch.stack(means)


def _pairs(
    guesses: Sequence[Guess], truths: Sequence[Truth], few: int | None
) -> Iterator[tuple[Tensor, Tensor, list[int]]]:
    """Guesses repeated beside the true images they are compared with, some questions at a time."""
    for start in range(0, len(guesses), _TOGETHER):
        true = [truth.images[:few] for truth in truths[start : start + _TOGETHER]]
        counts = [len(images) for images in true]
        ours = torch.stack(list(guesses[start : start + _TOGETHER]))
        yield ours.repeat_interleave(torch.tensor(counts), dim=0), torch.cat(true), counts
