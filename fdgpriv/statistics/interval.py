"""Intervals over independent units: of a mean, of a rate, and of the leaked share."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % interval over `n` independent units; None, with a reason, if it is missing."""

    value: float | None
    lower: float | None
    upper: float | None
    n: int
    reason: str | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval, if there is one."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)

    def named(self, name: str) -> dict[str, float]:
        """The figure as NAME, its ends as NAME_low and NAME_high if there are any, and NAME_n."""
        parts = {name: self.value, f"{name}_low": self.lower, f"{name}_high": self.upper, f"{name}_n": float(self.n)}
        return {key: value for key, value in parts.items() if value is not None}

    @classmethod
    def read(cls, figures: Mapping[str, float], name: str) -> "Interval":
        """The figure of this name, from figures in the form of `named`."""
        value, lower, upper = (figures.get(f"{name}{end}") for end in ("", "_low", "_high"))
        return cls(value, lower, upper, int(figures.get(f"{name}_n", 0)))

    def p_above(self, threshold: float = 0.0) -> float:
        """One-sided p of Student's t test that a mean exceeds `threshold`, by its interval; 1 without an interval."""
        if self.value is None or self.lower is None or self.n < 2:
            return 1.0
        error = (self.value - self.lower) / float(special.stdtrit(self.n - 1, 0.975))
        if error == 0:
            return 0.0 if self.value > threshold else 1.0
        return float(special.stdtr(self.n - 1, (threshold - self.value) / error))


def finite(name: str, values: ArrayLike) -> Array:
    """The values as float64 (n,); ValueError for NaN and infinities."""
    array: Array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"want {name} (n,) with n >= 1, got {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise ValueError(f"want finite {name}, got {array[bad[0]]} at {bad[0]} and {len(bad)} such in all")
    return array


def unit_means(values: Array, cluster: NDArray[Any] | None = None) -> Array:
    """Mean over the trials of each independent unit.

    Args:
        values: One value per trial (n,).
        cluster: The unit of each trial (n,), any labels; None if every trial is a unit.

    Returns: (G,), in the order of the sorted labels.
    """
    if cluster is None:
        return values
    if cluster.shape != values.shape:
        raise ValueError(f"want cluster {values.shape}, got {cluster.shape}")
    _, units = np.unique(cluster, return_inverse=True)
    means: Array = np.bincount(units, weights=values) / np.bincount(units)
    return means


def mean_interval(
    values: ArrayLike, cluster: NDArray[Any] | None = None, error: float = 0.05, shared_variance: float = 0.0
) -> Interval:
    """Mean over units with its two-sided t interval at level 1 - `error`.

    The value is the mean of the unit means, so all units have equal weights. `shared_variance` is the variance of the mean
    due to images that units share; it is added to that between units.
    """
    means = unit_means(finite("values", values), cluster)
    centre, n = float(means.mean()), len(means)
    if n < 2:
        return Interval(centre, None, None, n, f"want at least 2 units for an interval, got {n}")
    half = -float(special.stdtrit(n - 1, error / 2)) * math.sqrt(float(means.var(ddof=1)) / n + shared_variance)
    return Interval(centre, centre - half, centre + half, n)


def clopper_pearson(successes: int, trials: int, error: float = 0.05) -> Interval:
    """Exact two-sided interval of a success rate at level 1 - `error` (Clopper and Pearson, Biometrika 1934)."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"want 0 <= successes <= trials and trials >= 1, got {successes} of {trials}")
    lower, upper = lower_rate(successes, trials, error / 2), upper_rate(successes, trials, error / 2)
    return Interval(successes / trials, lower, upper, trials)


def lower_rate(successes: int, trials: int, error: float) -> float:
    """Clopper-Pearson lower bound of a rate at one-sided error: BetaInv(error; k, n - k + 1), 0 if k = 0."""
    if successes == 0:
        return 0.0
    return float(special.betaincinv(successes, trials - successes + 1, error))


def upper_rate(successes: int, trials: int, error: float) -> float:
    """Clopper-Pearson upper bound of a rate at one-sided error: BetaInv(1 - error; k + 1, n - k), 1 if k = n."""
    if successes == trials:
        return 1.0
    return float(special.betainccinv(successes + 1, trials - successes, error))


def leakage(
    attack: ArrayLike,
    control: ArrayLike,
    autoencoder: ArrayLike,
    cluster: NDArray[Any] | None = None,
    error: float = 0.05,
) -> Interval:
    """The leaked share L = (m_attack - m_b) / (m_autoencoder - m_b), for reading, not for verdicts.

    Args:
        attack: Metric per trial (n,), oriented so that higher leaks.
        control: The strongest control b, paired (n,).
        autoencoder: The attack's decoder given the true image, paired (n,).
        cluster: The unit of each trial (n,).

    Returns: 0 is the control, 1 the attack's ceiling. Value and interval are None, with a reason, unless the interval of the
        denominator is above 0.
    """
    base = finite("control", control)
    lead = unit_means(finite("attack", attack) - base, cluster)
    ceiling_lead = unit_means(finite("autoencoder", autoencoder) - base, cluster)
    n = len(lead)
    if n < 2:
        return Interval(None, None, None, n, f"want at least 2 units, got {n}")
    ratio = _ratio_of_means(lead, ceiling_lead, error)
    if isinstance(ratio, Interval):
        return ratio
    low, high = ratio
    return Interval(
        None, None, None, n, f"the autoencoder does not beat the control: its lead lies in [{low:.3g}, {high:.3g}]"
    )


def _ratio_of_means(numerator: Array, denominator: Array, error: float) -> Interval | tuple[float, float]:
    """The ratio of the means of paired values (n,), with its interval by Fieller's theorem (JRSS B 1954).

    The interval is bounded only if the interval of the denominator's mean is above 0; else returns that interval's ends.
    """
    n, top, bottom = len(numerator), float(numerator.mean()), float(denominator.mean())
    (top_variance, covariance), (_, bottom_variance) = (np.cov(numerator, denominator) / n).tolist()
    squared_t = float(special.stdtrit(n - 1, error / 2)) ** 2
    half = math.sqrt(squared_t * bottom_variance)
    if bottom - half <= 0:
        return bottom - half, bottom + half
    # both ends x solve a x^2 - 2 b x + c = 0
    a, b = bottom**2 - squared_t * bottom_variance, top * bottom - squared_t * covariance
    c = top**2 - squared_t * top_variance
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Interval(top / bottom, (b - root) / a, (b + root) / a, n)
