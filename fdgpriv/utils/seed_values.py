"""Checks the seeds of a run: whole numbers that every random generator of a run accepts."""

from collections.abc import Iterable
from operator import index
from typing import Any

LARGEST_SEED = 2**63 - 1
WANTED = "a whole number from 0 to 2^63 - 1"


def seed_value(value: Any, option: str = "--seed") -> int:
    """The seed as an integer; integers of numpy and torch are seeds too.

    Raises:
        ValueError: It is none, in one line that begins with `option`.
    """
    try:
        seed = index(value)
    except TypeError:
        seed = -1
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool") or not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"{option}: want {WANTED}, got {_shown(value)}")
    return seed


def seed_values(given: Any, option: str = "--seed") -> tuple[int, ...]:
    """The seeds of one, or of a sequence, as integers.

    Raises:
        ValueError: One is none, or there are none.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        return (seed_value(given, option),)
    seeds = tuple(seed_value(value, option) for value in given)
    if not seeds:
        raise ValueError(f"{option}: want at least one seed, {WANTED}; got none")
    return seeds


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
