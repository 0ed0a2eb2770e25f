"""Which of the artifacts that a method's clients share a defense acts on."""

from collections.abc import Sequence
from typing import Literal

from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.privacy.vectors import KINDS, STATISTICS

On = Literal["styles", "all"]


def covered_kinds(sharing: Disclosure, on: On, defense: str) -> tuple[str, ...]:
    """The kinds that clients share and that are ``styles`` (all statistics but counts and accuracies), or ``all`` but counts.

    Raises:
        ValueError: `on` is ``all``, and a kind cannot be written as a vector.
    """
    candidates = tuple(KINDS) if on == "all" else STATISTICS
    shared = sharing.uploads or tuple(kind for kind in candidates if sharing.releases(kind))
    other = [kind for kind in shared if kind not in KINDS and kind != SampleCount.kind]
    if on == "all" and other:
        raise ValueError(f"{defense}.on: want styles for {sharing.method}, whose {joined(other)} is no vector; got all")
    return tuple(kind for kind in candidates if kind in shared and sharing.releases(kind))


def altered(kind: str, covers: Sequence[str]) -> bool:
    """Whether artifacts of this kind change if those of `covers` do: an interpolation style is computed from styles."""
    return kind in covers or (kind == InterpolationStyle.kind and StyleStatistics.kind in covers)


def words(kind: str) -> str:
    """The kind's name as words."""
    return kind.replace("_", " ")


def joined(kinds: Sequence[str]) -> str:
    """The kinds' names as words, joined by commas."""
    return ", ".join(map(words, kinds))
