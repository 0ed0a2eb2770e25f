"""Images in another look, as another domain might show them."""

import torch
from torch import Tensor
from torch.nn import functional as F

INVERTED = 0.2  # probability
_BLOCK = 4  # pixels


def restyled(images: Tensor, rng: torch.Generator) -> Tensor:
    """The images (N, 3, H, W) in another look: with probability 0.5 the same for all of them, else each in its own.

    A look is a stroke (as it is, blurred, lighter, darker, contours, or blocks of four pixels), inverted or not, with
    its own color saturation, contrast and background color.
    """
    looks = 1 if float(torch.rand((), generator=rng)) < 0.5 else len(images)
    strokes = torch.randint(len(_STROKES), (looks,), generator=rng).expand(len(images))
    changed = images.clone()
    for number, stroke in enumerate(_STROKES):
        if bool((has_stroke := strokes == number).any()):
            changed[has_stroke] = stroke(images[has_stroke])
    inverted = (torch.rand(looks, 1, 1, 1, generator=rng) < INVERTED).float()
    changed = inverted * (1 - changed) + (1 - inverted) * changed
    gray, contrast = torch.rand(looks, 1, 1, 1, generator=rng), 0.25 + 0.75 * torch.rand(looks, 1, 1, 1, generator=rng)
    changed = gray * changed.mean(1, keepdim=True) + (1 - gray) * changed
    return (changed * contrast + (1 - contrast) * torch.rand(looks, 3, 1, 1, generator=rng)).clamp(0, 1)


def _same(images: Tensor) -> Tensor:
    return images


def _blurred(images: Tensor) -> Tensor:
    return F.avg_pool2d(images, 3, 1, 1, count_include_pad=False)


def _lighter(images: Tensor) -> Tensor:
    return F.max_pool2d(images, 3, 1, 1)


def _darker(images: Tensor) -> Tensor:
    return 1 - F.max_pool2d(1 - images, 3, 1, 1)


def _contours(images: Tensor) -> Tensor:
    return 1 - _lighter(images) + _darker(images)


def _blocks(images: Tensor) -> Tensor:
    coarse = F.avg_pool2d(images, _BLOCK, ceil_mode=True)
    return F.interpolate(coarse, size=images.shape[-2:], mode="nearest")


_STROKES = (_same, _blurred, _lighter, _darker, _contours, _blocks)
