"""Data augmentation from an explicit generator: flips and translations, or random crops and colour jitter.

Crops and colours follow the distributions of torchvision's RandomResizedCrop, ColorJitter and RandomGrayscale. Those
classes use torch's global generator, which is not touched here, and change one image, or all of a batch in one way.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import as_images

from ._colour_jitter import grey, jitter, jittered

_MAX_RATIO = 4 / 3  # torchvision's default: aspect ratio of a crop, between 3/4 and 4/3
_TRIES = 10  # of a crop that fits into the image
_GREY = 0.1  # torchvision's default probability


@dataclass(frozen=True)
class Crops:
    """Random resized crop, flip, colour jitter and grayscale, in this order.

    Attributes:
        min_area: Smallest crop, as a share of the image's area; the largest is the whole image.
        colour: Largest relative change of brightness, contrast and saturation, and largest hue shift; 0 for no jitter.
        grey: Probability of conversion to grayscale.
    """

    min_area: float
    colour: float = 0.0
    grey: float = 0.0

    def __call__(self, images: Tensor, flip: bool, rng: torch.Generator) -> Tensor:
        """Augments each image (B, 3, S, S) in [0, 1] independently; flips with probability 1/2 if `flip`."""
        boxes = crop_boxes(len(images), images.shape[-1], self.min_area, rng)
        flips = torch.rand(len(images), generator=rng) < 0.5
        colours, greys = [], []
        for _ in images:
            if self.colour:
                colours.append(jitter(self.colour, rng))
            greys.append(bool(self.grey) and float(torch.rand((), generator=rng)) < self.grey)
        images = resized_crops(images, boxes)
        images = torch.where(_per_image(flips), images.flip(3), images) if flip else images
        if colours:
            images = jittered(images, *map(torch.tensor, zip(*colours, strict=True)))
        return torch.where(_per_image(torch.tensor(greys)), grey(images), images) if any(greys) else images


def _per_image(values: Tensor) -> Tensor:
    """Values (B,) as (B, 1, 1, 1), to combine with images."""
    return values[:, None, None, None]


ImageChanges = Literal["none", "flip_translate", "crop", "crop_colour", "crop_strong_colour"]
AUGMENTATIONS: dict[ImageChanges, Crops | None] = {
    "none": None,
    "flip_translate": None,  # StableFDG: those of the two that the dataset allows
    "crop": Crops(0.8),  # CCST's released code
    "crop_colour": Crops(0.7, 0.3, _GREY),  # LSI's, PARDON's and FedSR's released codes
    "crop_strong_colour": Crops(0.7, 0.4, _GREY),  # FedDG-GA's released code
}


def augmented(images: Tensor, data: ClientData, changes: ImageChanges, rng: torch.Generator) -> Tensor:
    """Augments a client's images (B, 3, S, S), uint8 or float32, by the named augmentation; returns float32 in [0, 1].

    Flips only if the data allow flips. Pixels are moved as they are stored; crops and colours are computed on floats.
    """
    crops = AUGMENTATIONS[changes]
    if crops is not None and len(images):
        return crops(as_images(images), data.flip, rng)
    return as_images(images if changes == "none" else augment(images, data.flip, data.translate, rng))


def augment(images: Tensor, flip: bool, translate: float, rng: torch.Generator) -> Tensor:
    """Flips each image (B, 3, H, W) with probability 1/2; translates it by up to `translate` of its side, replicating edges."""
    if flip:
        flipped = torch.rand(len(images), generator=rng) < 0.5
        images = torch.where(flipped[:, None, None, None], images.flip(3), images)
    reach = int(translate * images.shape[-1])
    if reach:
        size = images.shape[-1]
        offset = torch.randint(2 * reach + 1, (2, len(images), 1), generator=rng) + torch.arange(size)
        offset = (offset - reach).clamp(0, size - 1)
        sample = torch.arange(len(images))[:, None, None, None]
        channel = torch.arange(3)[:, None, None]
        images = images[sample, channel, offset[0][:, None, :, None], offset[1][:, None, None, :]]
    return images


def crop_boxes(count: int, side: int, min_area: float, rng: torch.Generator) -> Tensor:
    """(count, 4) top, left, height and width of random crops of square images.

    The share of the area is uniform in [`min_area`, 1] and the log aspect ratio is uniform. Both are drawn again if the crop
    does not fit into the image; after ten tries the crop is the whole image.
    """
    shape = (count, _TRIES)
    area = side**2 * (min_area + (1 - min_area) * torch.rand(shape, generator=rng, dtype=torch.float64))
    ratio = ((2 * torch.rand(shape, generator=rng, dtype=torch.float64) - 1) * math.log(_MAX_RATIO)).exp()
    width, height = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
    fits = (width > 0) & (width <= side) & (height > 0) & (height <= side)
    first_fit = fits.long().argmax(1, keepdim=True)
    has_fit = fits.any(1)
    height, width = (torch.where(has_fit, sides.gather(1, first_fit)[:, 0], side) for sides in (height, width))
    position = torch.rand(2, count, generator=rng, dtype=torch.float64)
    top, left = (position[0] * (side - height + 1)).long(), (position[1] * (side - width + 1)).long()
    return torch.stack([top, left, height, width], dim=1)


def resized_crops(images: Tensor, boxes: Tensor) -> Tensor:
    """Images (B, 3, S, S): of image b the crop `boxes[b]` (top, left, height, width), enlarged to S x S bilinearly."""
    side = images.shape[-1]
    top, left, height, width = boxes.T[..., None]
    rows, columns = (
        start + (length / side * (torch.arange(side) + 0.5) - 0.5).clamp(min=0).minimum(length - 1)
        for start, length in ((top, height), (left, width))
    )
    positions = torch.stack(torch.broadcast_tensors(columns[:, None, :], rows[:, :, None]), dim=3)
    return grid_sample(images, (positions + 0.5) * 2 / side - 1, padding_mode="border", align_corners=False)
