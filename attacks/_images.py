"""Scores of reconstructed images against the true ones, shared by every reconstruction attack.

A guess is one image (3, H, W), which stands for each of the true ones; or a set (M, 3, H, W) in no order, of which no more
count than there are true ones, and which one Hungarian assignment on squared error pairs with them for all metrics.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from fdgpriv.exam import Guess, Truth, View
from fdgpriv.federation import generator
from fdgpriv.finding import Measured
from fdgpriv.metrics.matching import pairs, squared_errors
from fdgpriv.metrics.perceptual import FormulaLpips, extractor_lpips
from fdgpriv.metrics.pixels import EXACT_DB, psnr_per_image, ssim_per_image
from fdgpriv.metrics.realism import fid, inception_score, kid, resized
from fdgpriv.models.extractor import digits_extractor

from ._reading import public_images

_FEW = 1  # images behind one artifact that SSIM and LPIPS are taken on
_TOGETHER = 64


class Labelled(Tensor):
    """Guessed images that say which labels they have: any computation with them gives plain tensors."""

    shares: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def told(cls, images: Tensor, shares: Tensor) -> "Labelled":
        """These images, with the share of each label (K,) among those behind the artifact."""
        found = images.as_subclass(cls)
        found.shares = shares
        return found


def known_shares(view: View, blind: Mapping[str, list[Guess]]) -> dict[str, list[Guess]]:
    """Blind guesses (M, 3, H, W), with the shares of labels among the public images."""
    shares = public_images(view)[1].bincount(minlength=view.classes).float()
    return {name: [Labelled.told(guess, shares / shares.sum()) for guess in ones] for name, ones in blind.items()}


def labels_right(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
    """The share (M,) of the labels behind each artifact that the guess has right: 1 less half the L1 error."""
    told = [guess.shares for guess in guesses if isinstance(guess, Labelled)]
    off = [(shares - truth.histogram).abs().sum() for shares, truth in zip(told, truths, strict=True)]
    return 1 - torch.stack(off) / 2


def psnr(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
    """Mean PSNR (M,) in decibels of each guess against the images behind its artifact, at most EXACT_DB a pair."""
    return _paired(guesses, truths, None, lambda a, b: psnr_per_image(a, b).values.clamp_max(EXACT_DB))


def ssim(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
    """Mean SSIM (M,) of each guessed image against the first image behind its artifact, of a set over its pairs."""
    return _paired(guesses, truths, _FEW, lambda a, b: ssim_per_image(a, b, torch.float32).values)


def lpips(guesses: Sequence[Guess], truths: Sequence[Truth]) -> tuple[str, Tensor]:
    """The name of the perceptual distance, and its mean (M,) as for `ssim`."""
    network = _scorer()
    return network.name, _paired(guesses, truths, _FEW, lambda a, b: _distances(network, a, b))


def identified(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
    """Whether (M,) the image of the first line-up that is nearest to any of the guess, by squared error, is the true one."""
    hits = [
        float(squared_errors(truth.line_up, _counted(guess, truth)).amin(1).argmin() == truth.positions[0])
        for guess, truth in zip(guesses, truths, strict=True)
    ]
    return torch.tensor(hits)


def realism(guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Measured]:
    """KID, FID and IS of the guessed images as a set, where each stands for one image; resized to the extractor's 32 px."""
    if any(len(truth.images) != 1 for truth in truths):
        return {}
    extractor = digits_extractor()
    images = resized(torch.cat([_counted(guess, truth) for guess, truth in zip(guesses, truths, strict=True)]))
    reference = resized(torch.cat([truth.images for truth in truths]))
    found = [fid(images, reference, extractor), kid(images, reference, extractor, generator(0))]
    found += inception_score(images, extractor).values()
    return {score.name: score.measured for score in found}


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
    """Guessed images beside the true ones they are compared with, some questions at a time."""
    for start in range(0, len(guesses), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        found = [_pair(guess, truth.images, few) for guess, truth in zip(guesses[some], truths[some], strict=True)]
        ours, theirs = zip(*found, strict=True)
        yield torch.cat(ours), torch.cat(theirs), [len(images) for images in theirs]


def _pair(guess: Guess, truth: Tensor, few: int | None) -> tuple[Tensor, Tensor]:
    if guess.ndim == 4:
        return pairs(guess, truth)
    return guess.expand_as(truth[:few]), truth[:few]


def _counted(guess: Guess, truth: Truth) -> Tensor:
    """The images of the guess that count, (M, 3, H, W)."""
    return guess[None] if guess.ndim == 3 else guess[: len(truth.images)]
