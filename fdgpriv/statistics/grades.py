"""Grades a leak by its lead: trace, moderate or severe."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

Grade: TypeAlias = Literal["trace", "moderate", "severe"]
GRADES: tuple[Grade, ...] = ("trace", "moderate", "severe")

SEVERE_SHARE = 0.5  # of the achievable lead
EXPOSED_SHARE = 0.10  # of members accused at a false positive rate of 1 %

_ROUNDING = 1e-9  # 0.7 - 0.5 is 0.19999999999999996


def share_of_achievable(lead: float, control: float, perfect: float | None) -> float | None:
    """The attack's lead as a share of a perfect attack's lead over the strongest control, in [0, 1].

    Args:
        lead: The attack's lead over the control, in the metric's unit, positive if it leaks.
        control: The control's score.
        perfect: The score of a perfect attack; None if unknown.

    Returns: None if there is no perfect score, or the control reaches it.
    """
    if perfect is None or abs(perfect - control) <= _ROUNDING:
        return None
    return min(1.0, max(0.0, lead / abs(perfect - control)))


def grade(lead: float, relevant: float, share: float | None) -> Grade:
    """The grade of a leak with this lead.

    Args:
        lead: The lead over the strongest control.
        relevant: The smallest lead that matters.
        share: Share of the achievable lead; None if unknown, which gives at most ``moderate``.
    """
    if lead < relevant - _ROUNDING:
        return "trace"
    return "severe" if share is not None and share >= SEVERE_SHARE - _ROUNDING else "moderate"


def highest(grades: Sequence[Grade]) -> Grade:
    """The highest of at least one grade."""
    return max(grades, key=GRADES.index)


def counted(name: Grade, number: int) -> str:
    """The number of leaks of this grade: ``3 severe``, ``2 traces``."""
    return f"{number} {name}{'s' if name == 'trace' and number != 1 else ''}"


def words(lower: Grade, upper: Grade) -> str:
    """One grade, or a range of grades: ``trace to moderate``."""
    return lower if lower == upper else f"{lower} to {upper}"
