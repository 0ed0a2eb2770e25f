"""Checks of the numbers that privacy accounting takes."""

import math


def positive(name: str, value: float) -> float:
    """`value`, which must be finite and above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"want {name} > 0 and finite, got {value}")
    return value


def probability(delta: float) -> float:
    """`delta`, which must be in (0, 1)."""
    if not 0 < delta < 1:
        raise ValueError(f"want delta in (0, 1) (Gaussian noise gives no finite epsilon at delta = 0), got {delta}")
    return delta


def whole(name: str, count: int) -> int:
    """`count`, which must be a whole number >= 1."""
    if count < 1 or count != int(count):
        raise ValueError(f"want {name} a whole number >= 1, got {count}")
    return int(count)
