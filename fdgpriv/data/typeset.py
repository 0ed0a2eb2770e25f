"""Renders digits in matplotlib's fonts with random colour, rotation, shift and neighbouring digits."""

from pathlib import Path

import numpy as np
import torch
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont
from torch import Generator, Tensor

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
