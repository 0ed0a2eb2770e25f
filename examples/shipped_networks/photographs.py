"""Training images of the photo codec: augmented crops of freely licensed photographs, and procedural textures.

The photographs come with scikit-image (public domain or CC0) and scikit-learn (CC BY 2.0, by danielbuechele and
vultilion). A crop keeps the look of its photograph or becomes flat, as in a cartoon, or lines, as in a drawing.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from shipped_networks.pen import uniform

PHOTOGRAPHS = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "cell.png",
    "chelsea.png",
    "coins.png",
    "grass.png",
    "gravel.png",
    "hubble_deep_field.jpg",
    "ihc.png",
    "moon.png",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "page.png",
    "retina.jpg",
    "china.jpg",
    "flower.jpg",
)
HELD_OUT = ("coffee.png", "rocket.jpg")  # not trained on: for the figures on the card
LOOKS = ("photo", "flat", "lines", "texture")
_FOLDERS = (("skimage", "data"), ("sklearn", "datasets/images"))
_GREY = (0.299, 0.587, 0.114)  # weights of red, green and blue in luminance


def photograph(name: str) -> Image.Image:
    """The RGB image of this file name in scikit-image's or scikit-learn's package; FileNotFoundError if in neither."""
    for package, folder in _FOLDERS:
        try:
            path = Path(str(import_module(package).__file__)).parent / folder / name
        except ImportError:
            continue
        if path.is_file():
            return Image.open(path).convert("RGB")
    raise FileNotFoundError(
        f"want {name}, which scikit-image or scikit-learn has: pip install scikit-image scikit-learn"
    )


def photo_crops(names: Sequence[str], count: int, side: int, rng: torch.Generator) -> Tensor:
    """`count` crops (N, 3, side, side) float32 in [0, 1] of the photographs in turn, without augmentation.

    A crop has a random place and, before it is resized, a side from `side` to the photograph's, uniform in its logarithm.
    """
    shots = [photograph(name) for name in names]
    crops = torch.empty(count, 3, side, side)
    for index in range(count):
        shot = shots[index % len(shots)]
        most = min(shot.size)
        size = round(side * (most / side) ** float(torch.rand(1, generator=rng)))
        left, top = (int(torch.randint(length - size + 1, (1,), generator=rng)) for length in shot.size)
        part = shot.resize((side, side), Image.Resampling.BILINEAR, (left, top, left + size, top + size))
        crops[index] = torch.from_numpy(np.asarray(part, dtype=np.float32)).permute(2, 0, 1) / 255
    return crops


def training_images(count: int, side: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images (N, 3, side, side) float32 in [0, 1], and the look (N,) int64 of each, an index into `LOOKS`, in turn."""
    looks = torch.arange(count) % len(LOOKS)
    images = torch.empty(count, 3, side, side)
    texture = looks == LOOKS.index("texture")
    images[texture] = textures(int(texture.sum()), side, rng)
    crops = photo_crops(PHOTOGRAPHS, int((~texture).sum()), side, rng)
    flipped = torch.rand(len(crops), generator=rng) < 0.5
    crops[flipped] = crops[flipped].flip(3)
    images[~texture] = recoloured(crops, rng)
    changes: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {"flat": flat, "lines": lines}
    for name, change in changes.items():
        chosen = looks == LOOKS.index(name)
        images[chosen] = change(images[chosen], rng)
    return images.clamp(0, 1), looks


def recoloured(images: Tensor, rng: torch.Generator) -> Tensor:
    """Images (N, 3, H, W) with random gamma, saturation, mixture of the colour channels, contrast and brightness."""
    count = len(images)
    images = images.clamp_min(1e-3) ** uniform(rng, -0.6, 0.6, count, 1, 1, 1).exp()
    grey = torch.einsum("c,nchw->nhw", torch.tensor(_GREY), images)[:, None]
    images = grey + uniform(rng, 0, 1.8, count, 1, 1, 1) * (images - grey)
    mixture = torch.eye(3) + 0.25 * torch.randn(count, 3, 3, generator=rng)
    images = torch.einsum("nij,njhw->nihw", mixture / mixture.sum(2, keepdim=True).clamp_min(0.5), images)
    contrast = uniform(rng, 0.5, 1.4, count, 1, 1, 1)
    return (0.5 + contrast * (images - 0.5) + uniform(rng, -0.2, 0.2, count, 3, 1, 1)).clamp(0, 1)


def flat(images: Tensor, rng: torch.Generator) -> Tensor:
    """Images (N, 3, H, W) smoothed and reduced to a few levels of each colour, half of them with dark contours."""
    count = len(images)
    levels = torch.randint(2, 6, (count, 3, 1, 1), generator=rng)
    smooth = functional.avg_pool2d(functional.pad(images, (1, 1, 1, 1), mode="replicate"), 3, 1)
    reduced = (smooth * levels).round() / levels
    contour = _contours(images, uniform(rng, 0.1, 0.25, count, 1, 1, 1))
    return reduced * torch.where(torch.rand(count, 1, 1, 1, generator=rng) < 0.5, 1 - contour, 1.0)


def lines(images: Tensor, rng: torch.Generator) -> Tensor:
    """Contours of images (N, 3, H, W), dark on light: mostly black on white, some in other colours or inverted."""
    count = len(images)
    contour = _contours(images, uniform(rng, 0.06, 0.2, count, 1, 1, 1))
    plain = torch.rand(count, 1, 1, 1, generator=rng) < 0.6
    light = torch.where(plain, torch.ones(count, 3, 1, 1), uniform(rng, 0.6, 1, count, 3, 1, 1))
    dark = torch.where(plain, torch.zeros(count, 3, 1, 1), uniform(rng, 0, 0.5, count, 3, 1, 1))
    swap = torch.rand(count, 1, 1, 1, generator=rng) < 0.1
    light, dark = torch.where(swap, dark, light), torch.where(swap, light, dark)
    return light + contour * (dark - light)


def _contours(images: Tensor, threshold: Tensor) -> Tensor:
    """Ink (N, 1, H, W) in [0, 1] where the luminance's gradient over two pixels is above `threshold` (N, 1, 1, 1)."""
    grey = torch.einsum("c,nchw->nhw", torch.tensor(_GREY), images)[:, None]
    padded = functional.pad(grey, (1, 1, 1, 1), mode="replicate")
    across = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    return (((across.square() + down.square()).sqrt() - threshold) / 0.1).clamp(0, 1)


def textures(count: int, side: int, rng: torch.Generator) -> Tensor:
    """Coloured textures (N, 3, side, side) in [0, 1]: noise at several scales, stripes, and an edge."""
    total = torch.zeros(count, 3, side, side)
    for cells in (2, 4, 8, 16, side):
        grey, colour = (torch.randn(count, c, cells, cells, generator=rng) for c in (1, 3))
        share = uniform(rng, 0, 1, count, 1, 1, 1) / cells**0.5
        total += share * functional.interpolate(grey + 0.5 * colour, size=(side, side), mode="bilinear")
    axis = torch.arange(side, dtype=torch.float32) - side / 2
    for sharp in (False, True):
        angle = uniform(rng, 0, 2 * torch.pi, count, 1, 1, 1)
        ramp = axis * angle.cos() + axis[:, None] * angle.sin()
        wave = torch.sin(ramp * uniform(rng, 0.1, 1.5, count, 1, 1, 1))
        strength = uniform(rng, -0.8, 0.8, count, 3, 1, 1) * (torch.rand(count, 1, 1, 1, generator=rng) < 0.5)
        total += strength * ((ramp > uniform(rng, -side / 3, side / 3, count, 1, 1, 1)) if sharp else wave)
    contrast = uniform(rng, 0.1, 0.5, count, 1, 1, 1)
    return (uniform(rng, 0.1, 0.9, count, 3, 1, 1) + contrast * total).clamp(0, 1)
