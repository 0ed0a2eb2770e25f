"""What a person sees in an image file is what is read: transparency, orientation, colours, and more than 8 bits."""

import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from factories import refused
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


def tiff(
    planes: np.ndarray,
    colours: int,
    *,
    planar: bool = False,
    order: str = "<",
    compressed: bool = False,
    more: dict[int, int] | None = None,
) -> bytes:
    """A TIFF by the specification's bytes.

    Args:
        planes: (channels, 8, 8) of any type.
        colours: The photometric interpretation.
        planar: Whether planes are stored one after the other.
        order: Of bytes.
        compressed: Whether data are compressed by deflate.
        more: Further tags.
    """
    data = planes if planar else planes.transpose(1, 2, 0)
    content = [part.astype(part.dtype.newbyteorder(order)).tobytes() for part in (planes if planar else [data])]
    content = [zlib.compress(part) for part in content] if compressed else content
    count, size = len(planes), planes.dtype.itemsize * 8
    kind = {"u": 1, "i": 2, "f": 3}[planes.dtype.kind]
    shorts = {256: [SIDE], 257: [SIDE], 258: [size] * count, 259: [8 if compressed else 1], 262: [colours]}
    shorts |= {277: [count], 278: [SIDE], 284: [2 if planar else 1], 339: [kind] * count}
    shorts |= {tag: [value] for tag, value in (more or {}).items()}
    entries = {tag: (3, struct.pack(f"{order}{len(values)}H", *values), len(values)) for tag, values in shorts.items()}
    start = 8
    offsets = [start + sum(map(len, content[:i])) for i in range(len(content))]
    entries[273] = (4, struct.pack(f"{order}{len(offsets)}I", *offsets), len(offsets))
    entries[279] = (4, struct.pack(f"{order}{len(content)}I", *map(len, content)), len(content))
    body = b"".join(content)
    table, extra = b"", b""
    extra_at = start + len(body) + 2 + 12 * len(entries) + 4
    for tag, (number, value, length) in sorted(entries.items()):
        stored = value.ljust(4, b"\0")
        if len(value) > 4:
            stored, extra = struct.pack(f"{order}I", extra_at + len(extra)), extra + value
        table += struct.pack(f"{order}HHI", tag, number, length) + stored
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, start + len(body))
    return head + body + struct.pack(f"{order}H", len(entries)) + table + struct.pack(f"{order}I", 0) + extra


def two_halves(kind: str, left: Sequence[float], right: Sequence[float]) -> np.ndarray:
    """Planes (channels, 8, 8) of this type with these shares of white."""
    shares = np.zeros((len(left), SIDE, SIDE))
    shares[:, :, : SIDE // 2], shares[:, :, SIDE // 2 :] = np.array(left)[:, None, None], np.array(right)[:, None, None]
    white = 1 if np.dtype(kind).kind == "f" else np.iinfo(kind).max
    return (shares * white).round().astype(kind) if white > 1 else shares.astype(kind)


RED, LIME, GREY, DARK = (0.8, 0.4, 0.2), (0.2, 1.0, 0.6), (0.6,), (0.2,)
READ_TIFFS: dict[str, bytes] = {
    f"{name}, {order}, {state}": tiff(planes, colours, planar=planar, order=order, compressed=state == "compressed")
    for order in "<>"
    for state in ("compressed", "uncompressed")
    for name, planes, colours, planar in (
        ("8 bits", two_halves("uint8", RED, LIME), 2, False),
        ("8 bits, planes", two_halves("uint8", RED, LIME), 2, True),
        ("16 bits", two_halves("uint16", RED, LIME), 2, False),
        ("16 bits, planes", two_halves("uint16", RED, LIME), 2, True),
        ("grey", two_halves("uint8", GREY, DARK), 1, False),
        ("16 bits, grey", two_halves("uint16", GREY, DARK), 1, False),
        ("floats", two_halves("float32", GREY, DARK), 1, False),
    )
}
UNREAD_TIFFS: dict[str, tuple[bytes, str]] = {
    "with sign": (tiff(two_halves("int8", GREY, DARK), 1), "1 channel of 8 bits with sign (grey, compression 1)"),
    "words with sign": (tiff(two_halves("int16", GREY, DARK), 1), "1 channel of 16 bits with sign (grey"),
    "32 bits with sign": (tiff(two_halves("int32", GREY, DARK), 1), "1 channel of 32 bits with sign (grey"),
    "half floats": (tiff(two_halves("float16", GREY, DARK), 1), "1 channel of 16 bits as floats (grey"),
    "double floats": (tiff(two_halves("float64", GREY, DARK), 1), "1 channel of 64 bits as floats (grey"),
    "RGB floats": (tiff(two_halves("float32", RED, LIME), 2), "3 channels of 32 bits as floats (RGB"),
    "grey planes": (
        tiff(two_halves("uint8", RED, LIME), 1, planar=True, compressed=True),
        "3 channels of 8 bits (grey, one plane after the other, compression 8)",
    ),
    "five channels": (tiff(two_halves("uint8", [0.1] * 5, [0.2] * 5), 1), "5 channels of 8 bits (grey"),
    "other inks": (tiff(two_halves("uint8", [0.1] * 4, [0.2] * 4), 5, more={332: 2}), "4 channels of 8 bits (inks"),
    "missing colours": (tiff(two_halves("uint8", GREY, DARK), 2), "1 channel of 8 bits (RGB"),
    "photometric": (
        tiff(two_halves("uint8", GREY, DARK), 32803),
        "1 channel of 8 bits (photometric interpretation 32803",
    ),
}


@pytest.mark.parametrize("name", READ_TIFFS)
def test_a_tiff_is_read_as_its_tags_tell_or_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(READ_TIFFS[name])
    left, right = (RED, LIME) if "grey" not in name and "floats" not in name else (GREY * 3, DARK * 3)
    if name in ("16 bits, planes, <, uncompressed", "16 bits, planes, >, uncompressed", "floats, >, compressed"):
        with refused("a TIFF of a kind that is not read"):
            seen(tmp_path / "image")
        return
    pixels = seen(tmp_path / "image") / 255
    assert np.abs(pixels[:, :3] - left).max() <= 0.01
    assert np.abs(pixels[:, 5:] - right).max() <= 0.01


@pytest.mark.parametrize("name", UNREAD_TIFFS)
def test_a_tiff_that_is_not_read_is_told_by_its_kind(name: str, tmp_path: Path) -> None:
    content, kind = UNREAD_TIFFS[name]
    (tmp_path / "image").write_bytes(content)
    with refused(re.escape(f"image, got: a TIFF of a kind that is not read: {kind}")):
        seen(tmp_path / "image")


@pytest.mark.parametrize("suffix", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
def test_a_cut_file_is_truncated_and_an_empty_one_empty(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3)).astype(np.uint8)).save(path, suffix)
    content = path.read_bytes()
    path.write_bytes(b"")
    with refused("got: an empty file$"):
        seen(path)
    for stop in range(16, len(content) - 16, 16):
        path.write_bytes(content[:stop])
        with refused("got: (a )?truncated or damaged"):
            seen(path)


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
    ],
)
def test_levels_without_a_known_white_are_refused(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "image")
    with pytest.raises(ValueError, match=r"image, got: grey levels from .*; save 8 or 16 bits, or floats in \[0, 1\]$"):
        seen(tmp_path / "image")


def test_an_old_decoder_is_no_fault_of_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "right.png")
    monkeypatch.delattr(Image.Image, "has_transparency_data")
    with pytest.raises(ValueError, match=r"want Pillow 10\.1 or newer to read images, got"):
        list(decoded([tmp_path / "right.png"], 4))
