"""The resolution of a test: the smallest true lead that it would have found with probability 0.8."""

import math
from collections.abc import Mapping

import numpy as np
from scipy import special

from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.paired import LEVEL, compare

POWER = 0.8
_RUNS = 100
_RESAMPLES = 400
_SURE = 2.0  # standard errors
_STEPS = 40  # of leads that are tried, between 0 and the largest possible one


def resolution(attack: Array, controls: Mapping[str, Array], bounds: tuple[float, float] | None) -> float | None:
    """The smallest true lead over the strongest control found with probability 0.8 at p <= 0.025 over each control.

    (t_{.975,u-1} + t_{.8,u-1}) times the standard error of the paired lead over u units; for an attack that either hits
    or misses by simulation at the control's rate. The largest over controls; from that of a control that is surely weaker
    than the strongest one, the distance of the two is subtracted.

    Args:
        attack: Its score by unit (u,), higher leaks.
        controls: The same for each control.
        bounds: Least and greatest score that the metric allows.

    Returns: None where no lead has any variance, or with fewer than 2 units.
    """
    if len(attack) < 2 or not any(np.ptp(attack - control) for control in controls.values()):
        return None
    if bounds == (0.0, 1.0) and set(attack.tolist()) <= {0.0, 1.0}:
        return max(_of_hits(control) for control in controls.values())
    strongest = max(controls.values(), key=lambda control: float(control.mean()))
    return max(smallest_found(attack - control) - _surely_weaker(strongest - control) for control in controls.values())


def _surely_weaker(differences: Array) -> float:
    """By how much the strongest control surely exceeds another one, so that a lead over it is larger by as much.

    Args:
        differences: Strongest control minus the other one, by unit (u,).
    """
    se = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return max(0.0, float(differences.mean()) - _SURE * se)


def smallest_found(leads: Array) -> float:
    """(t_{.975,u-1} + t_{.8,u-1}) times the standard error of these leads (u,)."""
    u = len(leads)
    reach = float(special.stdtrit(u - 1, 1 - LEVEL) + special.stdtrit(u - 1, POWER))
    return reach * float(leads.std(ddof=1)) / math.sqrt(u)


def _of_hits(control: Array) -> float:
    """The same for hits at this control's rate plus the lead, by bisection over leads; 1 where none is found."""
    rate, low, high = float(control.mean()), 0, _STEPS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _power(control, rate, middle / _STEPS) >= POWER else (middle, high)
    return high / _STEPS


def _power(control: Array, rate: float, lead: float) -> float:
    """How often a true lead of hits over this control is found, over simulated experiments of the same size."""
    rng = np.random.default_rng(0)
    hits = (rng.random((len(control), _RUNS)) < min(1.0, rate + lead)).astype(float)
    found = compare(
        hits - rng.permuted(np.tile(control[:, None], _RUNS), axis=0), LEVEL, rng, _RESAMPLES, (-1.0, 1.0), hits=True
    )
    return float(np.mean([one.p is not None and one.p <= LEVEL for one in found]))


def power(leads: Array, rng: np.random.Generator, repeats: int = 400) -> float:
    """How often units drawn anew with replacement give p <= 0.025 over every control.

    Args:
        leads: (U, B) the lead of each unit over each control.
        rng: Of the draws.
        repeats: Number of draws.
    """
    u = len(leads)
    if u < 2:
        return 0.0
    drawn = leads[rng.integers(0, u, (repeats, u))]
    mean, se = drawn.mean(1), drawn.std(1, ddof=1) / math.sqrt(u)
    flat = se <= 1e-12 * np.abs(leads).max(initial=1e-300)
    t = np.where(flat, np.where(mean > 0, np.inf, -np.inf), mean / np.where(flat, 1.0, se))
    p = np.maximum(special.stdtr(u - 1, -t), 0.5 ** (np.abs(drawn) > 0).sum(1))
    return float((p.max(1) <= LEVEL).mean())
