"""Draws the images of the built-in dataset `digits` from data of scikit-learn and matplotlib, and writes digits.npz.

    python examples/make_digits.py fdgpriv/data/digits.npz

The scans are the UCI optical digits (Alpaydin and Kaynak, 1998, CC BY 4.0); `blend` follows MNIST-M and `type` follows SYN
(Ganin and Lempitsky, ICML 2015). The two photographs are scikit-learn's (by danielbuechele and vultilion, CC BY 2.0).

Many values lie within a rounding error of half a grey level, so that another processor, or another version of torch, rounds
some of them to the next level (18 values of `outline` and 29 of `blend` with ATEN_CPU_CAPABILITY=default). For this reason
the images are stored, and what the dataset consists of is the stored file.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits, load_sample_images
from torch import Generator, Tensor
from torch.nn import functional as F

from fdgpriv.utils.arithmetic import fixed_arithmetic
from fdgpriv.utils.seeds import generator

SIDE = 32
SEED = 0
CLASSES = 10
TYPE_PER_CLASS = 60
FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSansMono.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "DejaVuSerif-Italic.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
    "STIXGeneralItalic.ttf",
)
_CANVAS = 96
_POINTS = 60
_ROTATION = 10.0  # degrees, in both directions
_ZOOM = (1.5, 1.8)  # range of the magnification of the canvas
_SHIFT = 2.0  # canvas pixels, in both directions
_NEIGHBOUR = 40.0  # canvas pixels from centre to centre
_FAINT = 110  # ink of a neighbour, of 255


@fixed_arithmetic()
def domains(seed: int = SEED) -> dict[str, tuple[Tensor, Tensor]]:
    """By domain, images (N, 3, 32, 32) uint8 and labels (N,) uint8; no scan serves two domains."""
    bunch = load_digits()
    scans = torch.from_numpy(bunch.images).float()[:, None] / 16
    labels = torch.from_numpy(bunch.target).long()
    thirds = stratified_parts(labels, 3, generator(seed, 0))
    type_labels = torch.arange(CLASSES).repeat(TYPE_PER_CLASS)
    drawn = {
        "scan": (scan(scans[thirds[0]]), labels[thirds[0]]),
        "blend": (blend(scans[thirds[1]], generator(seed, 1)), labels[thirds[1]]),
        "type": (typeset(type_labels, SIDE, generator(seed, 2)), type_labels),
        "outline": (outline(scans[thirds[2]]), labels[thirds[2]]),
    }
    return {name: (in_bytes(images), truth.to(torch.uint8)) for name, (images, truth) in drawn.items()}


def in_bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] rounded to uint8."""
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


def stratified_parts(labels: Tensor, parts: int, rng: Generator) -> list[Tensor]:
    """Splits `labels` (N,) into disjoint sorted index sets whose counts of each class differ by at most one."""
    part = torch.empty_like(labels)
    for k in range(int(labels.max()) + 1):
        members = (labels == k).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=rng)
        part[members[order]] = (torch.arange(len(members)) + k) % parts
    return [(part == p).nonzero()[:, 0] for p in range(parts)]


def scan(scans: Tensor) -> Tensor:
    """Images (N, 3, 32, 32) of scans (N, 1, 8, 8), ink in [0, 1]: low contrast on grey, nearest-neighbour upsampling."""
    ink = F.interpolate(scans, size=(SIDE, SIDE), mode="nearest")
    return (0.75 - 0.35 * ink).expand(-1, 3, -1, -1)


def blend(scans: Tensor, rng: Generator) -> Tensor:
    """Images |photograph patch - ink| (N, 3, 32, 32) of scans (N, 1, 8, 8).

    The photographs are lightened so that ink is always darker than the background.
    """
    photographs = [torch.from_numpy(photo.copy()).permute(2, 0, 1) / 255 for photo in load_sample_images().images]
    patches = []
    for _ in range(len(scans)):
        photo = photographs[_below(len(photographs), rng)]
        top, left = _below(photo.shape[1] - SIDE, rng), _below(photo.shape[2] - SIDE, rng)
        patches.append(photo[:, top : top + SIDE, left : left + SIDE])
    ink = torch.sigmoid(10 * (_enlarged(scans) - 0.5))
    return (0.58 + 0.42 * torch.stack(patches) - ink).abs()


def outline(scans: Tensor) -> Tensor:
    """Contour drawings with light shading (N, 3, 32, 32) of scans (N, 1, 8, 8).

    The distance of a pixel to the contour is, to first order, |ink - level| / |gradient of ink|.
    """
    ink = F.avg_pool2d(F.pad(_enlarged(scans), (1,) * 4, mode="replicate"), 3, stride=1)
    down, right = torch.gradient(ink, dim=(2, 3))
    distance = (ink - 0.45).abs() / (down.square() + right.square()).sqrt().clamp_min(0.02)
    line = (1.5 - distance).clamp(0, 1)
    shade = 0.15 * (ink > 0.45)
    return (0.86 - torch.maximum(0.76 * line, shade)).expand(-1, 3, -1, -1)


def _enlarged(scans: Tensor) -> Tensor:
    """Scans (N, 1, 8, 8) upsampled bicubically to (N, 1, 32, 32) in [0, 1], with a margin of two pixels."""
    ink = F.interpolate(scans, size=(SIDE - 4, SIDE - 4), mode="bicubic", align_corners=False)
    return F.pad(ink, (2,) * 4).clamp(0, 1)


def _below(end: int, rng: Generator) -> int:
    return int(torch.randint(end, (), generator=rng))


def typeset(labels: Tensor, side: int, rng: Generator) -> Tensor:
    """Images (N, 3, side, side) in [0, 1] of the digits `labels` (N,), dark on light."""
    folder = Path(get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / name), _POINTS) for name in FONTS]
    ink = torch.stack([_glyph(label, side, fonts, rng) for label in labels.tolist()])
    count = len(labels)
    dark = 0.35 * torch.rand(count, 3, 1, 1, generator=rng)
    light = 0.65 + 0.35 * torch.rand(count, 3, 1, 1, generator=rng)
    return light + (dark - light) * ink[:, None]


def _glyph(label: int, side: int, fonts: list[ImageFont.FreeTypeFont], rng: Generator) -> Tensor:
    """Ink (side, side) in [0, 1] of one digit; each side shows the edge of a faint neighbour with probability 1/2."""
    font = fonts[int(torch.randint(len(fonts), (), generator=rng))]
    canvas = Image.new("L", (_CANVAS, _CANVAS), 0)
    draw = ImageDraw.Draw(canvas)
    others = torch.randint(10, (2,), generator=rng).tolist()
    present = (torch.rand(2, generator=rng) < 0.5).tolist()
    for other, is_present, offset in zip(others, present, (-_NEIGHBOUR, _NEIGHBOUR), strict=True):
        if is_present:
            _draw(draw, font, other, offset, _FAINT)
    _draw(draw, font, label, 0, 255)
    turn, zoom, right, down = torch.rand(4, generator=rng).tolist()
    canvas = canvas.rotate(_ROTATION * (2 * turn - 1), resample=Image.Resampling.BICUBIC)
    half = _CANVAS / 2 / (_ZOOM[0] + (_ZOOM[1] - _ZOOM[0]) * zoom)
    x, y = (_CANVAS / 2 + _SHIFT * (2 * share - 1) for share in (right, down))
    window = canvas.resize((side, side), Image.Resampling.BOX, box=(x - half, y - half, x + half, y + half))
    return torch.from_numpy(np.asarray(window, dtype=np.float32) / 255)


def _draw(draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont, digit: int, offset: float, ink: int) -> None:
    """Draws `digit` with its centre `offset` pixels right of the canvas centre."""
    left, top, right, bottom = font.getbbox(str(digit))
    corner = (_CANVAS / 2 + offset - (left + right) / 2, _CANVAS / 2 - (top + bottom) / 2)
    draw.text(corner, str(digit), font=font, fill=ink)


def save(path: Path) -> None:
    """Writes the images and labels of all domains; of grey images only one of three equal channels."""
    arrays: dict[str, Any] = {}
    for name, (images, labels) in domains().items():
        grey = bool((images == images[:, :1]).all())
        arrays[f"{name}_images"] = (images[:, :1] if grey else images).numpy()
        arrays[f"{name}_labels"] = labels.numpy()
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    save(Path(sys.argv[1]))
