"""Tests whether a figure changed between two runs: over pairs of units, or from two independent intervals."""

import math

import numpy as np
from scipy import special

from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.paired import compare

_RESAMPLES = 19_999
_TAIL = 0.025


def p_of_pairs(differences: Array) -> float | None:
    """Two-sided p that the mean of independent differences (n,) is 0, by the test of the verdicts; None if n < 2."""
    if len(differences) < 2:
        return None
    both = np.stack([differences, -differences], axis=1)
    sides = compare(both, _TAIL, np.random.default_rng(0), _RESAMPLES)
    return min(1.0, 2 * min(1.0 if side.p is None else side.p for side in sides))


def p_of_few(differences: Array) -> float | None:
    """Two-sided p by Student's t, for a few seeds; by the sign test if all differences are equal; None if n < 2."""
    n = len(differences)
    if n < 2:
        return None
    if np.ptp(differences) <= 1e-12:
        return 1.0 if abs(differences[0]) <= 1e-12 else 2 * 0.5**n
    t = float(differences.mean()) / (float(differences.std(ddof=1)) / math.sqrt(n))
    return 2 * float(special.stdtr(n - 1, -abs(t)))


def difference_of_intervals(before: Measured, after: Measured) -> tuple[Measured, float | None]:
    """After minus before, with a 95 % interval from the two 95 % intervals as if independent; and its two-sided p.

    Square-and-add: lower = d - sqrt((after - its lower)^2 + (before's upper - before)^2), upper likewise. The p is that of
    a normal distribution with the same half-width on the side of 0. The interval is too wide for two runs that are evaluated
    on the same images.

    Reference: Newcombe, "Interval estimation for the difference between independent proportions", Statistics in Medicine
        1998; Zou and Donner, "Construction of confidence limits about effect measures", ibid. 2008.
    Example: 0.5 [0.4, 0.6] after 0.5 [0.4, 0.6] is 0 [-0.141, 0.141].
    """
    n, direction = min(before.n or 0, after.n or 0), after.direction
    if before.value is None or after.value is None:
        reason = after.reason if after.value is None else before.reason
        return Measured(value=None, n=n, direction=direction, reason=reason), None
    value = after.value - before.value
    if before.ci95 is None or after.ci95 is None:
        return Measured(value=value, n=n, direction=direction, reason="want an interval of both"), None
    down = math.hypot(after.value - after.ci95[0], before.ci95[1] - before.value)
    up = math.hypot(after.ci95[1] - after.value, before.value - before.ci95[0])
    difference = Measured(value=value, ci95=(value - down, value + up), n=n, direction=direction)
    return difference, _p_of_normal(abs(value), down if value > 0 else up)


def _p_of_normal(distance: float, half: float) -> float | None:
    """Two-sided p of a normal estimate at this distance from 0 with a 95 % interval of this half-width."""
    if distance == 0:
        return 1.0
    return 2 * float(special.ndtr(special.ndtri(_TAIL) * distance / half)) if half else None
