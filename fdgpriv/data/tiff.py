"""Names the kinds of TIFF that Pillow does not decode, or decodes to other pixels than the file's tags tell.

Read are channels of equal size: grey, palette, RGB, YCbCr, CMYK or CIELAB with 1 to 16 bits, without sign, and grey as floats
of 32 bits. Pillow takes signed levels for unsigned ones, the planes of 16 bits of an uncompressed file for planes of 8 bits,
the first plane of grey levels for all of them, and swaps no bytes of compressed floats.
"""

from collections.abc import Mapping
from typing import Any, BinaryIO

from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

_BITS, _COMPRESSION, _PHOTOMETRIC, _CHANNELS, _PLANES, _PREDICTOR, _INKS, _NUMBERS = (
    258,
    259,
    262,
    277,
    284,
    317,
    332,
    339,
)
_WIDTH, _STRIPS, _TILES = 256, 273, 324  # without which there is no image
_WHITE_IS_ZERO, _PALETTE, _SEPARATED = 0, 3, 5
_COLOURS = {0: 1, 1: 1, 2: 3, _PALETTE: 1, _SEPARATED: 4, 6: 3, 8: 3}  # channels by photometric interpretation
_NAMES = {0: "grey", 1: "grey", 2: "RGB", _PALETTE: "palette", _SEPARATED: "inks", 6: "YCbCr", 8: "CIELAB"}
_UNSIGNED, _SIGNED, _FLOAT, _UNDEFINED = 1, 2, 3, 4
_KINDS_OF_NUMBERS = {_UNSIGNED: "", _UNDEFINED: "", _SIGNED: " with sign", _FLOAT: " as floats"}
_UNCOMPRESSED, _CONTIGUOUS, _INK_IS_CMYK, _FLOAT_PREDICTOR = 1, 1, 1, 3
_READ = "; read are 8 or 16 bits per channel without sign, and grey as floats of 32 bits"

Tags = Mapping[int, Any]


def is_tiff(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a TIFF."""
    return head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def bits(image: Image.Image) -> int | None:
    """Bits per channel of the file; None if the image is of no TIFF."""
    tags = getattr(image, "tag_v2", None)
    return None if tags is None else _all(tags, _BITS, 1)[0]


def white_is_zero(image: Image.Image) -> bool:
    """Whether the file is a TIFF in which 0 is white."""
    return _first(getattr(image, "tag_v2", {}), _PHOTOMETRIC, 1) == _WHITE_IS_ZERO


def unread_kind(image: Image.Image) -> str | None:
    """Why an opened image is not read as its tags tell, with its kind; None if it is, or is no TIFF."""
    tags = getattr(image, "tag_v2", None)
    if tags is None or _is_read(tags, is_swapped=getattr(tags, "_endian", "<") != "<"):
        return None
    return f"{_kind(tags)}{_READ}"


def kind_in(file: BinaryIO) -> str:
    """The kind of a TIFF that Pillow does not open, as the end of an error."""
    try:
        head = file.read(8)
        head += file.read(8) if head[2:4] in (b"+\0", b"\0+") else b""
        tags = ImageFileDirectory_v2(head)
        file.seek(tags.next)
        tags.load(file)
        if not {_WIDTH, _PHOTOMETRIC} <= tags.keys() or not {_STRIPS, _TILES} & tags.keys():
            return "a truncated or damaged TIFF file"
        return f"{_kind(tags)}{_READ}"
    except Exception:  # damaged tags
        return "a truncated or damaged TIFF file"


def _is_read(tags: Tags, is_swapped: bool) -> bool:
    sizes, numbers = set(_all(tags, _BITS, 1)), set(_all(tags, _NUMBERS, _UNSIGNED))
    channels, photometric = _first(tags, _CHANNELS, 1), _first(tags, _PHOTOMETRIC, _WHITE_IS_ZERO)
    colours, is_compressed = _COLOURS.get(photometric), _first(tags, _COMPRESSION, _UNCOMPRESSED) != _UNCOMPRESSED
    if len(sizes) > 1 or len(numbers) > 1 or colours is None or channels < colours:
        return False
    (size,), (number,) = sizes, numbers
    if photometric == _SEPARATED and _first(tags, _INKS, _INK_IS_CMYK) != _INK_IS_CMYK:
        return False
    if number == _FLOAT:
        is_plain = channels == 1 and size == 32 and _first(tags, _PREDICTOR, 1) != _FLOAT_PREDICTOR
        return is_plain and not (is_compressed and is_swapped)
    if number not in (_UNSIGNED, _UNDEFINED) or size not in (1, 2, 4, 8, 12, 16, 32):
        return False  # of 32 bits no white is known, which the decoder tells
    if channels > 1 and _first(tags, _PLANES, _CONTIGUOUS) != _CONTIGUOUS:
        return colours > 1 and (size == 8 or (size == 16 and is_compressed))
    return True


def _kind(tags: Tags) -> str:
    """For example "a TIFF of a kind that is not read: 3 channels of 16 bits with sign (RGB)"."""
    channels, sizes = _first(tags, _CHANNELS, 1), _all(tags, _BITS, 1)
    size = " and ".join(str(size) for size in dict.fromkeys(sizes))
    numbers = " and".join(dict.fromkeys(_KINDS_OF_NUMBERS.get(n, " of another kind") for n in _all(tags, _NUMBERS, 1)))
    planes = ", one plane after the other" if channels > 1 and _first(tags, _PLANES, 1) != _CONTIGUOUS else ""
    photometric = _first(tags, _PHOTOMETRIC, _WHITE_IS_ZERO)
    colours = _NAMES.get(photometric, f"photometric interpretation {photometric}")
    return (
        f"a TIFF of a kind that is not read: {channels} {'channel' if channels == 1 else 'channels'} of {size} bits{numbers} "
        f"({colours}{planes}, compression {_first(tags, _COMPRESSION, _UNCOMPRESSED)})"
    )


def _all(tags: Tags, tag: int, default: int) -> tuple[int, ...]:
    value = tags.get(tag, default)
    return tuple(value) if isinstance(value, tuple) else (int(value),)


def _first(tags: Tags, tag: int, default: int) -> int:
    return int(_all(tags, tag, default)[0])
