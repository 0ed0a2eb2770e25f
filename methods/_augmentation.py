"""Random changes of training images: flips and translations, or the crops and colours of the papers; drawn from a generator.

The crops and colours are torchvision's RandomResizedCrop, ColorJitter and RandomGrayscale with their own distributions of
parameters; torchvision's classes draw from torch's global generator, which nothing here touches.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fdgpriv.data.dataset import ClientData
from fdgpriv.utils.torchvision_import import torchvision

_RATIO = 4 / 3  # torchvision's default: a crop's width by its height is between 3/4 and 4/3
_TRIES = 10
_GREY = 0.1  # torchvision's default probability


@dataclass(frozen=True)
class Crops:
    """A random crop at the image's size, a flip, a jitter of colours, and grey, in this order.

    Attributes:
        least: The smallest crop, as a share of the image's area; the largest is all of it.
        colour: Of brightness, contrast and saturation, the largest relative change, of hue the largest turn; 0 for no jitter.
        grey: Probability that an image loses its colours.
    """

    least: float
    colour: float = 0.0
    grey: float = 0.0

    def __call__(self, images: Tensor, flip: bool, rng: torch.Generator) -> Tensor:
        """Each image (B, 3, S, S) in [0, 1] changed on its own; flipped with probability 1/2 where `flip` allows it."""
        side, functional = images.shape[-1], torchvision.transforms.functional
        boxes = crop_boxes(len(images), side, self.least, rng).tolist()
        turned = (torch.rand(len(images), generator=rng) < 0.5).tolist()
        made = []
        for image, box, turn in zip(images, boxes, turned, strict=True):
            one = functional.resized_crop(image, *box, [side, side], antialias=True)
            one = one.flip(2) if turn and flip else one
            if self.colour:
                one = jittered(one, *jitter(self.colour, rng))
            if self.grey and float(torch.rand((), generator=rng)) < self.grey:
                one = functional.rgb_to_grayscale(one, 3)
            made.append(one)
        return torch.stack(made)


ImageChanges = Literal["none", "flip_translate", "crop", "crop_colour"]
AUGMENTATIONS: dict[ImageChanges, Crops | None] = {
    "none": None,
    "flip_translate": None,  # StableFDG: what the dataset allows of the two
    "crop": Crops(0.8),  # CCST's released code
    "crop_colour": Crops(0.7, 0.3, _GREY),  # LSI's and PARDON's released codes
}


def augmented(images: Tensor, data: ClientData, how: ImageChanges, rng: torch.Generator) -> Tensor:
    """Images (B, 3, S, S) of this client, changed as `AUGMENTATIONS` names it; a flip only where its data allow flips."""
    crops = AUGMENTATIONS[how]
    if crops is not None:
        return crops(images, data.flip, rng)
    return images if how == "none" else augment(images, data.flip, data.translate, rng)


def augment(images: Tensor, flip: bool, translate: float, rng: torch.Generator) -> Tensor:
    """Each image (B, 3, H, W) flipped with probability 1/2 and moved by up to `translate` of its side, edges repeated."""
    if flip:
        turned = torch.rand(len(images), generator=rng) < 0.5
        images = torch.where(turned[:, None, None, None], images.flip(3), images)
    reach = int(translate * images.shape[-1])
    if reach:
        size = images.shape[-1]
        moved = nn.functional.pad(images, (reach,) * 4, mode="replicate")
        offset = torch.randint(2 * reach + 1, (2, len(images), 1), generator=rng) + torch.arange(size)
        sample = torch.arange(len(images))[:, None, None, None]
        channel = torch.arange(3)[:, None, None]
        images = moved[sample, channel, offset[0][:, None, :, None], offset[1][:, None, None, :]]
    return images


def crop_boxes(count: int, side: int, least: float, rng: torch.Generator) -> Tensor:
    """(count, 4) top, left, height and width of random crops of square images.

    Area uniform between `least` and 1, logarithm of width by height uniform, both drawn again while the crop does not fit
    into the image; after ten tries the whole image.
    """
    shape = (count, _TRIES)
    area = side**2 * (least + (1 - least) * torch.rand(shape, generator=rng, dtype=torch.float64))
    ratio = ((2 * torch.rand(shape, generator=rng, dtype=torch.float64) - 1) * math.log(_RATIO)).exp()
    width, height = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
    fits = (width > 0) & (width <= side) & (height > 0) & (height <= side)
    first = fits.long().argmax(1, keepdim=True)
    some = fits.any(1)
    height, width = (torch.where(some, sides.gather(1, first)[:, 0], side) for sides in (height, width))
    place = torch.rand(2, count, generator=rng, dtype=torch.float64)
    top, left = (place[0] * (side - height + 1)).long(), (place[1] * (side - width + 1)).long()
    return torch.stack([top, left, height, width], dim=1)


def jitter(most: float, rng: torch.Generator) -> tuple[list[int], list[float]]:
    """The order of the four changes of colour, and by how much each: brightness, contrast, saturation, hue."""
    order = torch.randperm(4, generator=rng).tolist()
    drawn = most * (2 * torch.rand(4, generator=rng, dtype=torch.float64) - 1)
    return order, (drawn + torch.tensor([1.0, 1.0, 1.0, 0.0])).tolist()


def jittered(image: Tensor, order: list[int], factors: list[float]) -> Tensor:
    """An image (3, S, S) with its colours changed by these factors in this order."""
    functional = torchvision.transforms.functional
    changes = (
        functional.adjust_brightness,
        functional.adjust_contrast,
        functional.adjust_saturation,
        functional.adjust_hue,
    )
    for which in order:
        image = changes[which](image, factors[which])
    return image
