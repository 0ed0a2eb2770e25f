"""Validates user-supplied names and output file names before a run starts."""

import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fdgpriv.utils.files import PART
from fdgpriv.utils.records import clean

LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes, the limits of common file systems


def check_name(name: str, what: str) -> None:
    """Raises ValueError if `name` has control characters, direction overrides or invalid UTF-8."""
    if (bad := re.search("[\n\t]", name)) or clean(name) != name:
        if (as_utf8 := _in_utf8(name)) is not None:
            raise ValueError(
                f"{what}: want names in the encoding of your locale ({sys.getfilesystemencoding()}), got {as_utf8!a} in "
                "UTF-8; set the environment variable PYTHONUTF8=1"
            )
        first = bad[0] if bad else next(c for c in name if clean(c) != c)
        raise ValueError(
            f"{what}: want a name without control characters, direction overrides and bytes that are not UTF-8; "
            f"got {first!a} in {name!a}"
        )


def composed(name: str) -> str:
    """`name` with composed characters (Unicode's form NFC): file systems and programs store é as one character or two."""
    return unicodedata.normalize("NFC", name)


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder in place of ``~``; as it is where there is no such user, unlike `Path.expanduser`."""
    return Path(os.path.expanduser(path))


def check_current_folder() -> None:
    """Raises ValueError if the current folder was removed: libraries cannot be loaded from there."""
    try:
        os.getcwd()
    except OSError as error:
        raise ValueError(f"want a current folder that exists, got one that was removed ({error.strerror})") from None


def _in_utf8(name: str) -> str | None:
    """The name decoded as UTF-8, if it is valid UTF-8 and the locale's encoding is another; else None."""
    if sys.getfilesystemencoding().lower() in ("utf-8", "utf8"):
        return None
    try:
        decoded = os.fsencode(name).decode()
    except UnicodeError:
        return None
    return decoded if clean(decoded) == decoded else None


def check_files(out: Path, files: Iterable[Path]) -> None:
    """Raises ValueError if two of these files below `out` coincide, or a name or path is too long."""
    counts = Counter(files)
    for file, count in counts.items():
        if count > 1:
            raise ValueError(f"want a separate file for each result, got {count} that would be written to {file}")
        for part in (*file.parts[:-1], f".{file.name}{PART}"):
            if (size := len(os.fsencode(part))) > LONGEST_NAME:
                raise ValueError(
                    f"want file names of at most {LONGEST_NAME} bytes, got {size} in {part}; use shorter names"
                )
        path = out.absolute() / file.with_name(f".{file.name}{PART}")
        if (size := len(os.fsencode(path))) > LONGEST_PATH:
            raise ValueError(f"want paths of at most {LONGEST_PATH} bytes, got {size} below --out; use a shorter --out")


def slug(text: str) -> str:
    """`text` with all characters but letters, digits and ``-_.=`` replaced by ``_``, for file names."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in text)
