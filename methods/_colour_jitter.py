"""Random brightness, contrast, saturation and hue of a whole batch at once, each image with separate factors and order.

The distributions and pixels are those of torchvision's ColorJitter, whose functions take the same factor for all images.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fdgpriv.utils.torchvision_import import torchvision


def jitter(strength: float, rng: torch.Generator) -> tuple[list[int], list[float]]:
    """The order of the four colour changes, and their factors: brightness, contrast, saturation, hue."""
    order = torch.randperm(4, generator=rng).tolist()
    offsets = strength * (2 * torch.rand(4, generator=rng, dtype=torch.float64) - 1)
    return order, (offsets + torch.tensor([1.0, 1.0, 1.0, 0.0])).tolist()


def jittered(images: Tensor, orders: Tensor, factors: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [0, 1] with their colours changed by `factors` (B, 4), image b in the order `orders[b]` (4,)."""
    images = images.clone()
    for position in orders.T:
        for i, change in enumerate(_CHANGES):
            rows = (position == i).nonzero()[:, 0]
            images[rows] = change(images[rows], factors[rows, i, None, None, None].to(images))
    return images


def grey(images: Tensor) -> Tensor:
    """Images (B, 1, H, W): the luma of images (B, 3, H, W)."""
    luma: Tensor = torchvision.transforms.functional.rgb_to_grayscale(images)
    return luma


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Images (B, 3, H, W) `factor` (B, 1, 1, 1) times as bright, at most 1."""
    return (factor * images).clamp(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Images whose distances from their mean luma are `factor` times as large, cut to [0, 1]."""
    return (factor * images + (1 - factor) * grey(images).mean((1, 2, 3), keepdim=True)).clamp(0, 1)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Images whose distances from their luma are `factor` times as large, cut to [0, 1]."""
    return (factor * images + (1 - factor) * grey(images)).clamp(0, 1)


def hue(images: Tensor, shift: Tensor) -> Tensor:
    """Images whose hue, in HSV, is moved by `shift` (B, 1, 1, 1) turns."""
    value, chroma = images.amax(1), images.amax(1) - images.amin(1)
    red, green, blue = images.unbind(1)
    unit = torch.where(chroma > 0, chroma, 1)
    sixths = torch.where(value == green, 2 + (blue - red) / unit, 4 + (red - green) / unit)
    sixths = torch.where(value == red, (green - blue) / unit, sixths)
    sectors = torch.tensor([5, 3, 1], device=images.device)[:, None, None]
    sectors = (sectors + sixths[:, None] + 6 * shift) % 6
    return value[:, None] - chroma[:, None] * sectors.minimum(4 - sectors).clamp(0, 1)


_CHANGES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (brightness, contrast, saturation, hue)
