"""Decodes and resizes image files in threads; errors name the file."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fdgpriv.utils.environment import usable_cores
from fdgpriv.utils.warnings_filter import warnings_ignored

Progress = Callable[[int, int], None]

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 64_000_000
_WORKERS = 8


def decoded(paths: Sequence[Path], image_size: int, progress: Progress | None = None) -> Iterator[NDArray[np.uint8]]:
    """Images (S, S, 3) of `paths`, in order, each stretched to a square of side S = `image_size`.

    Args:
        paths: Image files with 8 bits per channel; transparency is dropped.
        image_size: S, in pixels; resized bicubically with antialiasing.
        progress: Called with (done, N) after each image.

    Raises:
        ValueError: An image cannot be read.
    """
    pool = ThreadPoolExecutor(min(_WORKERS, usable_cores()))
    try:
        with warnings_ignored():  # Pillow warns about size and metadata; size is checked below
            for i, image in enumerate(pool.map(partial(_read, image_size=image_size), paths)):
                yield image
                if progress is not None:
                    progress(i + 1, len(paths))
    finally:
        pool.shutdown(cancel_futures=True)


def _read(path: Path, image_size: int) -> NDArray[np.uint8]:
    """One image (S, S, 3); every error of a decoder becomes a ValueError."""
    try:
        with Image.open(path, formats=_FORMATS) as image:
            fault = _fault(image)
            if not fault:
                image.draft("RGB", (2 * image_size, 2 * image_size))  # decode JPEGs at reduced size
                square = image.convert("RGB").resize((image_size, image_size), Image.Resampling.BICUBIC)
                return np.asarray(square)
    except FileNotFoundError:
        fault = "a broken symbolic link"
    except UnidentifiedImageError:
        fault = f"a format other than {', '.join(_FORMATS)}"
    except Image.DecompressionBombError:
        fault = f"more than {_MOST_PIXELS:,} pixels"
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ... for damaged files
        fault = (str(error).splitlines() or [type(error).__name__])[0]
    raise ValueError(f"want a readable image in {path}, got: {fault}")


def _fault(image: Image.Image) -> str:
    """Why the opened, not yet decoded `image` is rejected; empty if it is accepted."""
    if image.width * image.height > _MOST_PIXELS:
        return f"{image.width} x {image.height} pixels, more than {_MOST_PIXELS:,}"
    if image.mode[0] in "IF":
        return f"mode {image.mode}, not 8 bits per channel"
    return ""
