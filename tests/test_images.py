"""What a person sees in an image file is what is read: transparency, orientation, colours, and more than 8 bits."""

import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from fdgpriv.data.images import decoded

SIDE = 8
Save = Callable[[Path], None]
Colour = tuple[int, int, int]


def seen(path: Path) -> np.ndarray:
    """The image as it is read, (8, 8, 3)."""
    (image,) = decoded([path], SIDE)
    return image


def image(mode: str, left: int | tuple[int, ...], right: int | tuple[int, ...], suffix: str, **options: object) -> Save:
    """Saves an image of two halves."""

    def save(path: Path) -> None:
        picture = Image.new(mode, (SIDE, SIDE), left)
        picture.paste(right, (SIDE // 2, 0, SIDE, SIDE))
        picture.save(path, suffix, **options)

    return save


def array(level: float, kind: str, suffix: str, **options: object) -> Save:
    """Saves a grey image of this level and type of number."""
    return lambda path: Image.fromarray(np.full((SIDE, SIDE), level, dtype=kind)).save(path, suffix, **options)


def png(bits: int, kind: int, row: bytes, chunks: Mapping[bytes, bytes]) -> Save:
    """Saves a PNG, all of whose rows are this one, by the specification's bytes."""
    header = struct.pack(">IIBBBBB", SIDE, SIDE, bits, kind, 0, 0, 0)
    parts = {b"IHDR": header, **chunks, b"IDAT": zlib.compress((b"\0" + row) * SIDE), b"IEND": b""}
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    )
    return lambda path: path.write_bytes(content) and None


def palette(suffix: str, transparent: int | bytes) -> Save:
    """Saves a palette image, colour 1 on the left and colour 0 on the right."""

    def save(path: Path) -> None:
        picture = Image.new("P", (SIDE, SIDE), 1)
        picture.putpalette([9, 8, 7, 10, 20, 30] + [0] * 762)
        picture.paste(0, (SIDE // 2, 0, SIDE, SIDE))
        picture.save(path, suffix, transparency=transparent)

    return save


def swapped_profile() -> bytes:
    """An sRGB profile whose first channel is green and whose second is red."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    (tags,) = struct.unpack(">I", profile[128:132])
    at = {bytes(profile[start : start + 4]): start for start in range(132, 132 + 12 * tags, 12)}
    red, green = at[b"rXYZ"] + 4, at[b"gXYZ"] + 4
    profile[red : red + 8], profile[green : green + 8] = profile[green : green + 8], profile[red : red + 8]
    return bytes(profile)


def grey(level: int) -> Colour:
    return level, level, level


def linear(level: int) -> bytes:
    return struct.pack(">I", level)


WHITE, BLACK, SWAPPED = grey(255), grey(0), swapped_profile()
SHOWN: dict[str, tuple[Save, Colour, Colour]] = {
    # half of black over white is 255 * (1 - 128 / 255) = 127
    "half transparent": (image("RGBA", (0, 0, 0, 128), (0, 0, 0, 255), "PNG"), grey(127), BLACK),
    "webp": (image("RGBA", (0, 0, 0, 0), (90, 80, 70, 255), "WEBP", lossless=True), WHITE, (90, 80, 70)),
    "grey and alpha": (image("LA", (0, 128), (50, 255), "PNG"), grey(127), grey(50)),
    "tiff": (image("RGBA", (0, 0, 0, 128), (0, 0, 0, 0), "TIFF"), grey(127), WHITE),
    "palette, one colour": (palette("PNG", 1), WHITE, (9, 8, 7)),
    "palette, opacities": (palette("PNG", bytes([255, 128])), (132, 137, 142), (9, 8, 7)),
    "gif": (palette("GIF", 1), WHITE, (9, 8, 7)),
    "colour key": (image("RGB", 0, (9, 8, 7), "PNG", transparency=(0, 0, 0)), WHITE, (9, 8, 7)),
    "grey key": (image("L", 0, 50, "PNG", transparency=0), WHITE, grey(50)),
    "key of 1 bit": (png(1, 0, b"\xf0", {b"tRNS": b"\0\0"}), WHITE, WHITE),
    "key of 2 bits": (png(2, 0, b"\x55\xaa", {b"tRNS": b"\0\1"}), WHITE, grey(170)),
    "key of 4 bits": (png(4, 0, b"\x33\x33\x77\x77", {b"tRNS": b"\0\3"}), WHITE, grey(119)),
    "key of 16 bits": (png(16, 0, b"\1\2" * 4 + b"\1\3" * 4, {b"tRNS": b"\1\2"}), WHITE, grey(1)),
    "key of 48 bits": (
        png(16, 2, b"\1\2\3\4\5\6" * 4 + b"\x80" * 24, {b"tRNS": b"\1\2\3\4\5\6"}),
        WHITE,
        grey(128),
    ),
    "1 bit": (image("1", 1, 0, "PNG"), WHITE, BLACK),
    "16 bits": (array(40_000, "uint16", "PNG"), grey(156), grey(156)),  # 255 * 40000 / 65535 = 155.6
    "16 bits, tiff": (array(40_000, "uint16", "TIFF"), grey(156), grey(156)),
    "16 bits, white is 0": (array(40_000, "uint16", "TIFF", tiffinfo={262: 0}), grey(99), grey(99)),
    "pgm to 1000": (lambda path: path.write_bytes(b"P5 8 8 1000\n" + b"\1\xf4" * 64) and None, grey(128), grey(128)),
    "floats": (array(0.25, "float32", "TIFF"), grey(64), grey(64)),
    "cmyk": (image("CMYK", (255, 0, 0, 51), (0, 0, 0, 0), "TIFF"), (0, 204, 204), WHITE),
    "cmyk, inverted by Adobe": (image("CMYK", (255, 0, 0, 51), 0, "JPEG", quality=100), (0, 204, 204), WHITE),
    "lab": (image("LAB", (136, 128, 128), (255, 128, 128), "TIFF"), grey(127), WHITE),
    # 255 * (55 / 255) ** (1 / 2.2) = 127
    "gamma": (png(8, 2, b"\x37" * 24, {b"gAMA": linear(100_000)}), grey(127), grey(127)),
    "gamma, 16 bits": (png(16, 0, b"\x37" * 16, {b"gAMA": linear(100_000)}), grey(127), grey(127)),
    "gamma, palette": (png(8, 3, bytes(8), {b"gAMA": linear(100_000), b"PLTE": b"7" * 3}), grey(127), grey(127)),
    "gamma of a display": (png(8, 2, b"\x37" * 24, {b"gAMA": linear(45_455)}), grey(55), grey(55)),
    "sRGB": (png(8, 2, b"\x37" * 24, {b"gAMA": linear(100_000), b"sRGB": b"\0"}), grey(55), grey(55)),
    "profile": (image("RGB", (200, 30, 60), 0, "PNG", icc_profile=SWAPPED), (30, 200, 60), BLACK),
    "profile and alpha": (image("RGBA", (255, 0, 0, 128), 0, "PNG", icc_profile=SWAPPED), (127, 255, 127), WHITE),
    "profile of colours on grey": (image("L", 99, 0, "JPEG", icc_profile=SWAPPED, quality=100), grey(99), BLACK),
    "damaged profile": (image("RGB", (200, 30, 60), 0, "PNG", icc_profile=b"no profile"), (200, 30, 60), BLACK),
    "damaged exif": (image("RGB", grey(90), 0, "JPEG", exif=b"Exif\0\0MM\0*\xff\xff"), grey(90), BLACK),
    "first frame": (
        image("RGB", (200, 30, 60), 0, "GIF", save_all=True, append_images=[Image.new("RGB", (SIDE, SIDE), 9)]),
        (200, 30, 60),
        BLACK,
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_image_is_read_as_it_is_shown(name: str, tmp_path: Path) -> None:
    save, left, right = SHOWN[name]
    save(tmp_path / "image")
    pixels = seen(tmp_path / "image").astype(int)
    assert np.abs(pixels[:, :3] - left).max() <= 1
    assert np.abs(pixels[:, 5:] - right).max() <= 1


@pytest.mark.parametrize("suffix", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_upright(orientation: int, suffix: str, tmp_path: Path) -> None:
    """By the Exif specification: where the 0th row and the 0th column of the stored image are shown."""
    shown = np.zeros((16, 24, 3), dtype=np.uint8)
    shown[:8, :12], shown[:8, 12:], shown[8:, :12] = 250, 170, 90
    rows, columns = {  # of the shown image that are the stored one's 0th row and column
        1: ("top", "left"), 2: ("top", "right"), 3: ("bottom", "right"), 4: ("bottom", "left"),
        5: ("left", "top"), 6: ("right", "top"), 7: ("right", "bottom"), 8: ("left", "bottom"),
    }[orientation]  # fmt: skip
    stored = shown if rows in ("top", "bottom") else shown.transpose(1, 0, 2)
    stored = stored[::-1] if rows in ("bottom", "right") else stored
    stored = stored[:, ::-1] if columns in ("bottom", "right") else stored
    exif = Image.Exif()
    exif[274] = orientation
    options = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True}}.get(suffix, {})
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "image", suffix, exif=exif, **options)
    pixels = seen(tmp_path / "image").astype(int)
    for row, column, level in ((1, 1, 250), (1, 6, 170), (6, 1, 90), (6, 6, 0)):
        assert np.abs(pixels[row, column] - level).max() <= 3


@pytest.mark.parametrize(
    "save",
    [
        array(200, "float32", "TIFF"),
        array(float("nan"), "float32", "TIFF"),
        array(-0.5, "float32", "TIFF"),
        array(200, "int32", "TIFF"),
    ],
)
def test_levels_without_a_known_white_are_refused(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "image")
    with pytest.raises(ValueError, match=r"image, got: grey levels from .*; save 8 or 16 bits, or floats in \[0, 1\]$"):
        seen(tmp_path / "image")
