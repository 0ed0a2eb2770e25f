"""Pictures of a run's folder as WebP inside the page, at the size at which they are shown; grids as single columns."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from PIL import Image, UnidentifiedImageError

from fdgpriv.results.picture_grid import COLUMNS, PictureGrid

_LARGEST_FILE = 8 * 2**20  # bytes
_MOST_PIXELS = 2**24
_WIDEST = 900  # pixels that a picture fills
_LARGEST_IMAGE = 96  # pixels, of a side of an image in a grid
_QUALITY = 82  # of WebP
_SINGLE_IMAGE = "1 image"  # label of rows with artifacts of one image
NOT_SENT = "from an artifact of one image, which is not what crosses the wire"


@dataclass(frozen=True)
class InlinePicture:
    """A picture as a data URI, the size at which it is shown, and whether its pixels are enlarged."""

    uri: str
    width: int
    height: int
    enlarged: bool


@dataclass(frozen=True)
class GridColumn:
    """Images of one kind, one below the other or side by side."""

    heading: str
    picture: InlinePicture


@dataclass(frozen=True)
class GridPart:
    """The columns of a grid for rows with the same label, such as ``whole client``."""

    label: str
    columns: tuple[GridColumn, ...]


LabelledPart = TypeVar("LabelledPart", "GridPart", "Strips")


def as_sent(parts: Sequence[LabelledPart], level: str) -> tuple[LabelledPart, ...]:
    """What crosses the wire first: where artifacts are not of single images, those rows are labelled so and stand second."""
    if level == "image":
        return tuple(parts)
    sent = [part for part in parts if part.label != _SINGLE_IMAGE]
    sent += [replace(part, label=NOT_SENT) for part in parts if part.label == _SINGLE_IMAGE]
    return tuple(sent)


def picture(folder: Path, name: str) -> InlinePicture | None:
    """A PNG in `folder`, small ones enlarged by an integer; None if it cannot be read or lies outside."""
    image = _read(folder, name)
    if image is None:
        return None
    image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    factor = max(1, min(4, _WIDEST // max(image.width, 1)))
    width = min(image.width * factor, _WIDEST)
    return _inlined(image, width, round(image.height * width / image.width))


def grid(
    folder: Path, name: str, columns: Sequence[str] = (), side: int = _LARGEST_IMAGE, across: bool = False
) -> tuple[GridPart, ...]:
    """The images of a grid in `folder`; empty if the file has none.

    Args:
        folder, name: The PNG.
        columns: Names of the columns to show, in order; all of them if empty.
        side: Of an image on the page, in pixels.
        across: Whether the images of a column stand side by side.
    """
    parts = []
    for strip in strips(folder, name, columns, across):
        width, height = (side * strip.count, side) if across else (side, side * strip.count)
        inlined = ((column, _inlined(images, width, height)) for column, images in strip.columns.items())
        parts.append(GridPart(strip.label, tuple(GridColumn(COLUMNS.get(key, key), image) for key, image in inlined)))
    return tuple(parts)


@dataclass(frozen=True)
class Strips:
    """By column, the images of rows with the same label, joined to one; `count` of them."""

    label: str
    count: int
    columns: Mapping[str, Image.Image]


def strips(folder: Path, name: str, columns: Sequence[str] = (), across: bool = False) -> tuple[Strips, ...]:
    """The images of a grid in `folder` as RGB, by the label of their rows; arguments as of `grid`."""
    image = _read(folder, name)
    layout = None if image is None else PictureGrid.read(image)
    if image is None or layout is None:
        return ()
    shown = [column for column in columns or layout.columns if column in layout.columns]
    image = image.convert("RGB")
    parts = []
    for label, rows in groupby(range(len(layout.rows)), key=lambda row: layout.rows[row]):
        chosen = list(rows)
        joined = {column: layout.images(image, column, chosen, _LARGEST_IMAGE, across) for column in shown}
        parts.append(Strips(label, len(chosen), joined))
    return tuple(parts)


def _read(folder: Path, name: str) -> Image.Image | None:
    """The PNG of this name in `folder`; None if there is none, it lies outside, or it is too large or damaged."""
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder.resolve()) or not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            return None
        image = Image.open(io.BytesIO(path.read_bytes()), formats=["PNG"])
        if image.width * image.height > _MOST_PIXELS:
            return None
        image.load()
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError):
        return None
    return image


def _inlined(image: Image.Image, width: int, height: int) -> InlinePicture:
    """The image as WebP, shown at this size; reduced to it if it is larger."""
    enlarged = width > image.width
    if width < image.width and not enlarged and image.height > height > _LARGEST_IMAGE:
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    data = io.BytesIO()
    image.save(data, "WEBP", quality=_QUALITY)
    uri = f"data:image/webp;base64,{base64.b64encode(data.getvalue()).decode('ascii')}"
    return InlinePicture(uri, width, height, enlarged)
