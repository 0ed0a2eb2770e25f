"""Names that others chose, checked before anything is computed: each must fit into files, figures and reports."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fdgpriv.utils.files import PART
from fdgpriv.utils.records import clean

LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes, as file systems have it


def check_name(name: str, what: str) -> None:
    """Raises a ValueError of one line where `name` has a character that text files, fonts or terminals cannot show."""
    if (bad := re.search("[\n\t]", name)) or clean(name) != name:
        first = bad[0] if bad else next(c for c in name if clean(c) != c)
        raise ValueError(
            f"{what}: want a name without control characters, direction overrides and bytes that are not UTF-8; "
            f"got {first!a} in {name!a}"
        )


def check_files(out: Path, files: Iterable[Path]) -> None:
    """Raises a ValueError of one line where two of these files below `out` are one, or a name is longer than is allowed."""
    counts = Counter(files)
    for file, count in counts.items():
        if count > 1:
            raise ValueError(f"want a file of its own for each result, got {count} that would be written to {file}")
        for part in (*file.parts[:-1], f".{file.name}{PART}"):
            if (size := len(os.fsencode(part))) > LONGEST_NAME:
                raise ValueError(
                    f"want file names of at most {LONGEST_NAME} bytes, got {size} in {part}; use shorter names"
                )
        path = out.absolute() / file.with_name(f".{file.name}{PART}")
        if (size := len(os.fsencode(path))) > LONGEST_PATH:
            raise ValueError(f"want paths of at most {LONGEST_PATH} bytes, got {size} below --out; use a shorter --out")


def slug(text: str) -> str:
    """`text` as part of a file's name."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in text)
