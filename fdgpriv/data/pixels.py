"""Images stored with 8 bits per channel and used as floats: a quarter of the memory, and exact for decoded images."""

from collections.abc import Sequence
from threading import Lock

import torch
from torch import Tensor

from fdgpriv.utils.file_memory import in_file

_LOCK = Lock()


def as_images(pixels: Tensor) -> Tensor:
    """Images (..., 3, H, W) float32 in [0, 1] of `pixels` uint8 in 0 to 255; floats are returned as they are."""
    return pixels.float().div_(255) if pixels.dtype == torch.uint8 else pixels


def as_stored(images: Tensor, like: Tensor) -> Tensor:
    """Images (..., 3, H, W) float32 in [0, 1], rounded to uint8 in 0 to 255 where `like` is uint8."""
    return (255 * images).round().to(torch.uint8) if like.dtype == torch.uint8 else images


def joined(parts: Sequence[Tensor]) -> Tensor:
    """`parts` (n, 3, H, W) concatenated: uint8 if all are, else float32 in [0, 1]."""
    if len({part.dtype for part in parts}) > 1:
        parts = [as_images(part) for part in parts]
    return torch.cat(list(parts))


class FloatImages:
    """An attribute with the float images of the stored attribute `source`.

    They are computed when first used, and kept: the same tensor each time. Code that needs few images at a time uses
    `as_images` on a part of the stored ones.
    """

    def __init__(self, source: str) -> None:
        self.source, self.name = source, f"_float_{source}"

    def __get__(self, owner: object, kind: type | None = None) -> Tensor:
        pixels: Tensor = getattr(owner, self.source)
        if pixels.dtype != torch.uint8:
            return pixels
        with _LOCK:
            if self.name not in owner.__dict__:
                owner.__dict__[self.name] = in_file(as_images(pixels))
            images: Tensor = owner.__dict__[self.name]
            return images
