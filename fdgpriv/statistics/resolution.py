"""The resolution of a test: the smallest true lead that it finds with probability 0.8."""

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from scipy import special

from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.paired import LEVEL, compare

POWER = 0.8
_DRAWS = 400  # of the bootstrap
_HIT_SHARE = 0.9  # minimum share of scores that are 0 or 1 for an attack that hits or misses; ties have other scores
_RUNS = 100
_RESAMPLES = 400
_STEPS = 40  # tried leads, between 0 and the largest possible one


def resolution(
    attack: Array,
    controls: Mapping[str, Array],
    bounds: tuple[float, float] | None,
    shared_variance: Array | None = None,
) -> float | None:
    """The smallest true lead over the strongest control found with probability 0.8: at p <= 0.025 over every control.

    By bootstrap; with one control and normal leads it is (t_{.975,u-1} + t_{.8,u-1}) times the standard error of the lead
    over u units. For an attack that either hits or misses, by simulation at the controls' rates.

    Args:
        attack: The attack's score by unit (u,), higher leaks.
        controls: The scores (u,) of each control.
        bounds: Smallest and largest score that the metric allows.
        shared_variance: (B,) variance of each mean lead due to images that units share; 0 by default.

    Returns: None if no lead has any variance, or with fewer than 2 units.
    """
    if len(attack) < 2 or not any(np.ptp(attack - control) for control in controls.values()):
        return None
    shared = np.zeros(len(controls)) if shared_variance is None else shared_variance
    if bounds == (0.0, 1.0) and np.isin(attack, bounds).mean() >= _HIT_SHARE and not shared.any():
        return max(_resolution_of_hits(tuple(control.tolist())) for control in controls.values())
    return _resolution_of_leads(np.stack([attack - control for control in controls.values()], axis=1), shared)


def _resolution_of_leads(leads: Array, shared: Array) -> float:
    """Minimum detectable effect from leads (u, B), by bootstrap over units: the shift of all leads with which t exceeds its
    quantile over every control in 0.8 of the draws.

    The smallest mean lead over equally strong controls is biased downwards; the bias is estimated from the draws.
    """
    u, means, rng = len(leads), leads.mean(0), np.random.default_rng(0)
    wider = math.sqrt(u / (u - 1))  # a draw varies less than a new experiment
    draws = leads[rng.integers(0, u, (_DRAWS, u))]
    deviations = wider * (draws.mean(1) - means) + _shared_deviations(shared, _DRAWS, rng)
    errors = np.sqrt((wider * draws.std(1, ddof=1)) ** 2 / u + shared)
    needed = float(special.stdtrit(u - 1, 1 - LEVEL)) * errors
    smallest_lead = 2 * means.min() - (means + deviations).min(1).mean()
    return max(0.0, float(smallest_lead + np.quantile((needed - means - deviations).max(1), POWER)))


@lru_cache(maxsize=1000)  # several attacks and adversaries have the same controls
def _resolution_of_hits(control: tuple[float, ...]) -> float:
    """Minimum detectable effect for hits at this control's rate plus the lead, by bisection; 1 if none is detected."""
    scores, low, high = np.array(control), 0, _STEPS
    while high - low > 1:
        middle = (low + high) // 2
        is_detected = _power(scores, float(scores.mean()), middle / _STEPS) >= POWER
        low, high = (low, middle) if is_detected else (middle, high)
    return high / _STEPS


def _power(control: Array, rate: float, lead: float) -> float:
    """The share of simulated experiments of the same size that find this true lead of hits over the control."""
    rng = np.random.default_rng(0)
    hits = (rng.random((len(control), _RUNS)) < min(1.0, rate + lead)).astype(float)
    tests = compare(
        hits - rng.permuted(np.tile(control[:, None], _RUNS), axis=0), LEVEL, rng, _RESAMPLES, (-1.0, 1.0), hits=True
    )
    return float(np.mean([test.p is not None and test.p <= LEVEL for test in tests]))


def power(leads: Array, rng: np.random.Generator, repeats: int = 400, shared_variance: Array | None = None) -> float:
    """The share of bootstrap draws of units with p <= 0.025 over every control.

    Args:
        leads: (U, B) the lead of each unit over each control.
        rng: Random numbers of the draws.
        repeats: Number of draws.
        shared_variance: (B,) variance of each mean lead due to images that units share; 0 by default.
    """
    u = len(leads)
    if u < 2:
        return 0.0
    shared = np.zeros(leads.shape[1]) if shared_variance is None else shared_variance
    draws = leads[rng.integers(0, u, (repeats, u))]
    mean = draws.mean(1) + _shared_deviations(shared, repeats, rng)
    se = np.sqrt(draws.var(1, ddof=1) / u + shared)
    flat = se <= 1e-12 * np.abs(leads).max(initial=1e-300)
    t = np.where(flat, np.where(mean > 0, np.inf, -np.inf), mean / np.where(flat, 1.0, se))
    p = np.maximum(special.stdtr(u - 1, -t), 0.5 ** (np.abs(draws) > 0).sum(1))
    return float((p.max(1) <= LEVEL).mean())


def _shared_deviations(shared: Array, draws: int, rng: np.random.Generator) -> Array:
    """(draws, B): deviations of the mean leads under resampling of shared images, with the same draw for all leads."""
    if not shared.any():
        return np.zeros((draws, len(shared)))
    return rng.standard_normal((draws, 1)) * np.sqrt(shared)
