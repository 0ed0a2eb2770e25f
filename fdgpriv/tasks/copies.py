"""Altered copies of candidate images, for adversaries without the originals: re-compressed, cropped, or flipped."""

from functools import lru_cache
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fdgpriv.utils.seeds import generator

QUALITY = 50
CROP_SHARE = 7 / 8  # side of a cropped copy, relative to the image: 28 of 32 px


@lru_cache(maxsize=2)
def copies(images: Tensor) -> dict[str, Tensor]:
    """Altered copies (N, 3, H, W) in [0, 1] of images (N, 3, H, W) in [0, 1], by the name of the alteration.

    Copies of the same tensor are cached; random crops depend only on the number of images.
    """
    return {
        "recompressed": recompressed(images),
        "cropped": cropped(images, generator(len(images))),
        "flipped": images.flip(3),
    }


def recompressed(images: Tensor, quality: int = QUALITY) -> Tensor:
    """Images (N, 3, H, W) after 8-bit JPEG compression of this quality."""
    return torch.stack([_jpeg(image, quality) for image in images])


def cropped(images: Tensor, rng: torch.Generator, share: float = CROP_SHARE) -> Tensor:
    """A random square of each image (N, 3, H, W), with `share` of its side, resized to the original size."""
    side = images.shape[-1]
    small = max(1, round(share * side))
    corners = torch.randint(side - small + 1, (len(images), 2), generator=rng).tolist()
    parts = torch.stack([image[:, y : y + small, x : x + small] for image, (y, x) in zip(images, corners, strict=True)])
    resized = nn.functional.interpolate(parts, size=(side, side), mode="bilinear", align_corners=False, antialias=True)
    return resized.clamp(0, 1)


def _jpeg(image: Tensor, quality: int) -> Tensor:
    pixels = (255 * image).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    read = np.array(Image.open(file).convert("RGB"))
    return torch.from_numpy(read).permute(2, 0, 1).float() / 255
