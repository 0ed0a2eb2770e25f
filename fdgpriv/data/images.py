"""Decodes image files in threads to RGB as viewers show them, and resizes them; errors name the file."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from fdgpriv.data import tiff
from fdgpriv.utils.environment import usable_cores
from fdgpriv.utils.warnings_filter import warnings_ignored

Progress = Callable[[int, int], None]
Colour = int | tuple[int, ...]

SUFFIXES = (
    *(".bmp", ".dib", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)
_FORMATS = ("BMP", "DIB", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 64_000_000
_WORKERS = 8
_DISPLAY_GAMMA = 2.2
_HEAD = 12  # bytes that a file's format is known by
_SIGNATURES = (  # of the formats whose files begin with fixed bytes, TIFF excepted
    *((b"\xff\xd8\xff", "JPEG"), (b"\x89PNG\r\n", "PNG"), (b"GIF8", "GIF"), (b"RIFF", "WEBP"), (b"BM", "BMP")),
    *((b"P%d" % number, "PPM") for number in range(1, 7)),
)


class UnknownPixels(ValueError):
    """An image whose file is not read to the pixels that it tells, or tells too little."""


def decoded(paths: Sequence[Path], image_size: int, progress: Progress | None = None) -> Iterator[NDArray[np.uint8]]:
    """Images (S, S, 3) of `paths`, in order, each stretched to a square of side S = `image_size`.

    As viewers show them: turned as their metadata tell, colours in sRGB by their colour profile or gamma, transparent
    pixels over white, of animations the first frame.

    Args:
        paths: Image files with 8 or 16 bits per channel, or grey levels as floats in [0, 1].
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
    """One image (S, S, 3); every error of a decoder, or a decoder that is too old, becomes a ValueError."""
    if not hasattr(Image.Image, "has_transparency_data"):
        raise ValueError(f"want Pillow 10.1 or newer to read images, got {PIL.__version__}")
    try:
        with Image.open(path, formats=_FORMATS) as image:
            if image.width * image.height <= _MOST_PIXELS:
                image.draft("RGB", (2 * image_size, 2 * image_size))  # decode JPEGs at reduced size
                return stretched(as_seen(image), image_size)
            fault = f"{image.width} x {image.height} pixels, more than {_MOST_PIXELS:,}"
    except FileNotFoundError:
        fault = "a broken symbolic link" if path.is_symlink() else "no such file"
    except UnidentifiedImageError:
        fault = _unidentified(path)
    except Image.DecompressionBombError:
        fault = f"more than {_MOST_PIXELS:,} pixels"
    except UnknownPixels as error:
        fault = _first_line(error)
    except OSError as error:
        fault = error.strerror or f"truncated or damaged data ({_first_line(error)})"
    except Exception as error:  # decoders raise SyntaxError, struct.error, ... for damaged files
        fault = f"truncated or damaged data ({_first_line(error)})"
    raise ValueError(f"want a readable image in {path}, got: {fault}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _unidentified(path: Path) -> str:
    """What a file is that no decoder takes."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
            if not head:
                return "an empty file"
            if tiff.is_tiff(head):
                file.seek(0)
                return tiff.kind_in(file)
    except OSError as error:
        return error.strerror or "an unreadable file"
    name = next((name for signature, name in _SIGNATURES if head.startswith(signature)), None)
    return f"a format other than {', '.join(_FORMATS)}" if name is None else f"a truncated or damaged {name} file"


def as_seen(image: Image.Image) -> Image.Image:
    """A copy of the image in mode RGB, see `decoded`.

    Raises:
        UnknownPixels: It is a TIFF of a kind that is not read, or its levels have no known white.
    """
    if (unread := tiff.unread_kind(image)) is not None:
        raise UnknownPixels(unread)
    gamma, is_inverted, bits = _gamma(image), tiff.white_is_zero(image), tiff.bits(image) or 16
    key = _transparent_colour(image)
    upright = image
    with suppress(Exception):  # damaged metadata do not hide the image
        upright = ImageOps.exif_transpose(image)
    image = image.copy() if upright is image else upright
    shares = _shares(image, bits, is_inverted) if image.mode[0] in "IF" else None
    colours, alpha = _split(image, key, gamma, shares)
    profile = image.info.get("icc_profile")
    if image.mode == "LAB":
        colours = _transformed(colours, _from_lab())
    elif profile and (transform := _from_profile(profile, colours.mode)) is not None:
        colours = _transformed(colours, transform)
    elif gamma != 1 and image.mode[0] not in "IF":
        colours = colours.convert("RGB").point([round(255 * (level / 255) ** gamma) for level in range(256)] * 3)
    if alpha is None:
        return colours.convert("RGB")
    white = Image.new("RGB", image.size, "white")
    white.paste(colours, mask=alpha)
    return white


def stretched(image: Image.Image, image_size: int) -> NDArray[np.uint8]:
    """The image (S, S, 3) of an RGB one, stretched to a square of side S = `image_size`."""
    return np.asarray(image.resize((image_size, image_size), Image.Resampling.BICUBIC))


def _split(
    image: Image.Image, key: Colour | None, gamma: float, shares: NDArray[np.float64] | None
) -> tuple[Image.Image, Image.Image | None]:
    """The colours with 8 bits per channel (mode L, RGB, CMYK or LAB) and the opacity (L); None where all is opaque.

    Args:
        image: The decoded image.
        key: The colour that is transparent.
        gamma: As of `_gamma`.
        shares: Grey levels as of `_shares`; None of an image with 8 bits per channel.
    """
    if shares is not None:
        grey = Image.fromarray((255 * shares**gamma).round().astype(np.uint8))
        opacity = np.where(np.asarray(image) == key, 0, 255).astype(np.uint8)
        return grey, None if key is None else Image.fromarray(opacity)
    if key is not None:
        image.info["transparency"] = key
    if image.has_transparency_data:
        complete = image.convert("RGBA")
        return complete.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB"), complete.getchannel("A")
    if image.mode in ("L", "RGB", "CMYK", "LAB"):
        return image, None
    return image.convert("L" if image.mode == "1" else "RGB"), None


def _shares(image: Image.Image, size: int, is_inverted: bool) -> NDArray[np.float64]:
    """Grey levels of more than 8 bits as shares of white, in [0, 1]; UnknownPixels if the file does not tell what white is.

    Args:
        image: The decoded image.
        size: Bits per level of the file.
        is_inverted: Whether 0 is white.
    """
    levels = np.asarray(image)
    darkest, brightest = float(levels.min()), float(levels.max())
    white = 1.0 if image.mode == "F" else 2.0**size - 1
    if size not in (12, 16, 32) or (size == 32 and image.mode != "F") or not 0 <= darkest <= brightest <= white:
        raise UnknownPixels(
            f"grey levels from {darkest:g} to {brightest:g} of {size} bits, of which no white is known; "
            "save 8 or 16 bits, or floats in [0, 1]"
        )
    shares = levels.astype(np.float64) / white
    return 1 - shares if is_inverted else shares


def _transparent_colour(image: Image.Image) -> Colour | None:
    """The colour that a PNG declares transparent, on the scale of its decoded pixels; None if it declares none.

    Pillow leaves the declared colour on the file's scale, but not the pixels: a raw mode such as ``L;2`` or ``RGB;16B``
    names the bits per channel.
    """
    key: Any = image.info.get("transparency")
    tiles = getattr(image, "tile", ())
    if image.mode == "P" or key is None or not tiles:
        return None
    _, _, bits = str(tiles[0][3]).partition(";")
    if image.mode == "RGB":
        return tuple(int(level) >> 8 if bits.startswith("16") else int(level) for level in key)
    if image.mode == "L" and bits[:1] in ("2", "4"):
        return int(key) * 255 // ((1 << int(bits[0])) - 1)
    return int(key)


def _gamma(image: Image.Image) -> float:
    """The exponent that takes the file's levels to those of a display; 1 for an image without gamma, or in sRGB."""
    encoded = image.info.get("gamma", 0)
    if not encoded or "srgb" in image.info or image.info.get("icc_profile"):
        return 1.0
    exponent = 1 / (encoded * _DISPLAY_GAMMA)
    return exponent if abs(exponent - 1) > 0.05 else 1.0  # libpng's threshold


def _transformed(image: Image.Image, transform: ImageCms.ImageCmsTransform) -> Image.Image:
    changed = ImageCms.applyTransform(image, transform)
    assert changed is not None  # None is the answer to inPlace=True
    return changed


@lru_cache(maxsize=32)
def _from_profile(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """The transform of images in this mode from an embedded colour profile to sRGB; None if the profile does not fit."""
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        intent = ImageCms.Intent(ImageCms.getDefaultIntent(source))
        return ImageCms.buildTransform(source, _srgb(), mode, "RGB", intent)
    except Exception:  # also viewers show such an image without its profile
        return None


@lru_cache(maxsize=1)
def _from_lab() -> ImageCms.ImageCmsTransform:
    return ImageCms.buildTransform(ImageCms.createProfile("LAB"), _srgb(), "LAB", "RGB")


def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
