"""Compares names that users give to clients, domains and classes, and generates names that none of them has.

One name may be stored in several ways: é as one character or two, with blanks around it, or with characters that are not
seen. They are one name wherever names are read: in folders, tables, dictionaries and recordings.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from fdgpriv.utils.file_names import check_name

T = TypeVar("T")

JOINERS = "\u200c\u200d"  # change how letters of some scripts and emoji are drawn
_IDLE_JOINERS = re.compile(rf"(?<![^\x00-\x7f])[{JOINERS}]+|[{JOINERS}]+(?![^\x00-\x7f])")
# characters of Unicode's category Cf, selectors of glyphs, and letters and blanks that are drawn as nothing
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u202a-\u202e\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)


def plain(name: str) -> str:
    """The name in composed characters (NFC), with single spaces as blanks, and without characters that are not seen.

    Two names are one if their plain forms are equal; upper and lower case are different.

    Example:
        >>> plain(" real\u00a0world\ufeff ")
        'real world'
    """
    visible = _UNSEEN.sub("", unicodedata.normalize("NFC", name))
    return " ".join(_IDLE_JOINERS.sub("", visible).split())


def without_case(name: str) -> str:
    """What counts of a name where a file system does not distinguish upper and lower case."""
    return unicodedata.normalize("NFC", plain(name).casefold())


def by_plain_name(given: Mapping[str, T], what: str) -> dict[str, T]:
    """The mapping with `plain` names.

    Raises:
        ValueError: A name is no text or is empty, or two are one name.
    """
    first: dict[str, str] = {}
    for name in given:
        if not isinstance(name, str) or not plain(name):
            raise ValueError(f"{what}: want names of visible characters, got {name!r}")
        check_name(name, what)
        if (other := first.setdefault(plain(name), name)) != name:
            raise ValueError(f"{what}: want different names, got {other!a} and {name!a}, which are one name")
    return {plain(name): value for name, value in given.items()}


def check_case(names: Iterable[str], what: str, apart: Iterable[Collection[str]] = ()) -> None:
    """Raises ValueError if two names differ only by upper and lower case, unless both are in one collection of `apart`."""
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(without_case(name), name)
        if other != name and not any(other in both and name in both for both in apart):
            raise ValueError(
                f"{what}: want names that differ by more than upper and lower case, got {other!r} and {name!r}"
            )


def unused(name: str, taken: Collection[str]) -> str:
    """`name`, with a number if one of the names in `taken` equals it, also where case is not distinguished.

    Example:
        >>> unused("none", ["None", "photo"])
        'none (2)'
    """
    known = {without_case(other) for other in taken}
    number, candidate = 1, name
    while without_case(candidate) in known:
        number += 1
        candidate = f"{name} ({number})"
    return candidate


def shadow_names(count: int, taken: Collection[str]) -> list[str]:
    """Names of `count` shadow clients, none of which is the name of a client in `taken`.

    Example:
        >>> shadow_names(2, ["photo", "shadow-00"])
        ['shadow-01', 'shadow-02']
    """
    known, names, number = {without_case(other) for other in taken}, list[str](), 0
    while len(names) < count:
        if without_case(name := f"shadow-{number:02d}") not in known:
            names.append(name)
        number += 1
    return names
