"""Synthetic training images of the shipped networks: drawn and typeset digits in four looks, from no dataset.

No image comes from a scan or a photograph. The ink is a pen drawing along randomly bent strokes (`pen`) or a digit in a
font; the look (rendering style) adds colours, background and clutter.
"""

from dataclasses import dataclass

import matplotlib
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional

from shipped_networks.pen import SIDE, draw, random_maps, uniform

FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "cmr10",
    "cmss10",
    "cmtt10",
    "cmb10",
)
LOOKS = ("scan", "blend", "type", "outline")


@dataclass(frozen=True, eq=False)
class SyntheticDigits:
    """Synthetic images with labels.

    Attributes:
        images: (N, 3, 32, 32) float32 in [0, 1].
        labels: (N,) int64, the digit.
        looks: (N,) int64, an index into `LOOKS`.
    """

    images: Tensor
    labels: Tensor
    looks: Tensor


def synthetic_digits(count: int, rng: torch.Generator) -> SyntheticDigits:
    """`count` images, balanced over digits and looks."""
    labels = torch.arange(count) % 10
    looks = torch.arange(count) // 10 % len(LOOKS)
    drawn = torch.rand(count, generator=rng) < torch.where(looks == LOOKS.index("type"), 0.1, 0.85)
    ink = torch.empty(count, SIDE, SIDE)
    ink[drawn] = draw(labels[drawn], rng)
    ink[~drawn] = typeset(labels[~drawn], rng)
    images = torch.empty(count, 3, SIDE, SIDE)
    for index, look in enumerate((_scan, _blend, _type, _outline)):
        images[looks == index] = look(ink[looks == index], rng)
    return SyntheticDigits(images.clamp(0, 1), labels, looks)


def typeset(labels: Tensor, rng: torch.Generator) -> Tensor:
    """Ink (N, 32, 32) in [0, 1] of digits (N,) in random `FONTS`, rotated, shifted and scaled."""
    glyphs = _glyphs()
    chosen = glyphs[torch.randint(len(FONTS), labels.shape, generator=rng), labels]
    turns = random_maps(len(labels), 0.3, 0.12, rng)
    grid = functional.affine_grid(turns, [len(labels), 1, SIDE, SIDE], align_corners=False)
    return functional.grid_sample(chosen[:, None], grid, align_corners=False)[:, 0].clamp(0, 1)


def _glyphs() -> Tensor:
    """Every digit in every font, (fonts, 10, 64, 64) in [0, 1]."""
    folder = f"{matplotlib.get_data_path()}/fonts/ttf"
    glyphs = torch.empty(len(FONTS), 10, 64, 64)
    for index, name in enumerate(FONTS):
        font = ImageFont.truetype(f"{folder}/{name}.ttf", 56)
        for digit in range(10):
            sheet = Image.new("L", (64, 64))
            ImageDraw.Draw(sheet).text((32, 32), str(digit), fill=255, font=font, anchor="mm")
            glyphs[index, digit] = torch.from_numpy(np.asarray(sheet, dtype=np.float32)) / 255
    return glyphs


def _scan(ink: Tensor, rng: torch.Generator) -> Tensor:
    """Grey images of an 8 x 8 grid with 17 levels, upsampled by nearest neighbour or bicubically."""
    count = len(ink)
    coarse = (functional.avg_pool2d(ink[:, None], 4) * 16).round() / 16
    blocks = functional.interpolate(coarse, scale_factor=4.0, mode="nearest")
    smooth = functional.interpolate(coarse, scale_factor=4.0, mode="bicubic").clamp(0, 1)
    grey = torch.where(torch.rand(count, 1, 1, 1, generator=rng) < 0.5, blocks, smooth)
    return _inked(grey, uniform(rng, 0, 0.2, count, 1, 1, 1), uniform(rng, 0.8, 1, count, 1, 1, 1), rng)


def _blend(ink: Tensor, rng: torch.Generator) -> Tensor:
    """Absolute difference of the ink and a coloured texture."""
    return (_texture(len(ink), rng) - ink[:, None]).abs()


def _type(ink: Tensor, rng: torch.Generator) -> Tensor:
    """Ink and background of uniform colours, sometimes with part of another digit, and noise."""
    count = len(ink)
    clutter = torch.roll(ink[torch.randperm(count, generator=rng)], SIDE * 3 // 4, dims=2)
    clutter = clutter * (torch.rand(count, 1, 1, generator=rng) < 0.3)
    dark, light = uniform(rng, 0, 0.45, count, 3, 1, 1), uniform(rng, 0.55, 1, count, 3, 1, 1)
    image = _inked(torch.maximum(ink, 0.6 * clutter)[:, None], dark, light, rng)
    return image + uniform(rng, 0, 0.04, count, 1, 1, 1) * torch.randn(image.shape, generator=rng)


def _outline(ink: Tensor, rng: torch.Generator) -> Tensor:
    """Contours of the ink at level 0.5, of random width."""
    count = len(ink)
    soft = functional.avg_pool2d(functional.pad(ink[:, None], (1, 1, 1, 1), mode="replicate"), 3, 1)
    across, down = soft.roll(-1, 3) - soft.roll(1, 3), soft.roll(-1, 2) - soft.roll(1, 2)
    distance = 2 * (soft - 0.5).abs() / (across.square() + down.square()).sqrt().clamp_min(0.05)
    line = (uniform(rng, 1.0, 2.5, count, 1, 1, 1) - distance).clamp(0, 1)
    return _inked(line, uniform(rng, 0, 0.25, count, 1, 1, 1), uniform(rng, 0.8, 1, count, 1, 1, 1), rng)


def _inked(ink: Tensor, dark: Tensor, light: Tensor, rng: torch.Generator) -> Tensor:
    """Images (N, 3, H, W) with ink in `dark` on `light` or, with probability 0.4, inverted."""
    swap = torch.rand(len(ink), 1, 1, 1, generator=rng) < 0.4
    fore, back = torch.where(swap, light, dark), torch.where(swap, dark, light)
    return (back + (fore - back) * ink).expand(-1, 3, -1, -1)


def _texture(count: int, rng: torch.Generator) -> Tensor:
    """Coloured textures (N, 3, 32, 32) in [0, 1]: noise at several scales, as in photographs, and a sharp edge."""
    total = torch.zeros(count, 3, SIDE, SIDE)
    for cells in (2, 4, 8, 16, 32):
        noise = torch.randn(count, 1, cells, cells, generator=rng) + 0.5 * torch.randn(
            count, 3, cells, cells, generator=rng
        )
        share = uniform(rng, 0, 1, count, 1, 1, 1) / cells**0.5
        total = total + share * functional.interpolate(noise, size=(SIDE, SIDE), mode="bilinear")
    turns = random_maps(count, 3.1, 1.0, rng)
    edge = functional.affine_grid(turns, [count, 1, SIDE, SIDE], align_corners=False)[..., 0] > 0
    total = total + edge[:, None] * uniform(rng, -0.8, 0.8, count, 3, 1, 1)
    contrast = uniform(rng, 0.1, 0.4, count, 1, 1, 1)
    return (uniform(rng, 0.15, 0.85, count, 3, 1, 1) + contrast * total).clamp(0, 1)
