"""Tests whether an attack beats every control that its threat model grants."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fdgpriv.statistics.interval import Array, finite, unit_means
from fdgpriv.statistics.paired import LEVEL, Comparison, compare
from fdgpriv.statistics.resolution import resolution

NO_OTHER_CLIENT = "no other client of the domain exists, so a leak of the client cannot be told from one of the domain"


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One attack against the controls that its threat model grants, all fixed before the run and paired over targets.

    Args:
        attack: Metric per target (n,), oriented so that higher leaks (turn the sign of LPIPS or MSE).
        controls: The same metric per target (n,) for each control.
        cluster: The independent unit (client, artifact) of each target (n,); None where every target is one.
        bounds: Least and greatest value of the metric, as (0, 1) for hits. Without it a 0/1 metric with rare or
            near-certain success has no upper bound.
    """

    attack: Array
    controls: dict[str, Array]
    cluster: NDArray[Any] | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not self.controls:
            raise ValueError("want at least one control, got none: a number without a control is not evidence")
        n = finite("attack", self.attack).shape
        for name, control in self.controls.items():
            if finite(f"control {name!r}", control).shape != n:
                raise ValueError(f"want control {name!r} paired with attack {n}, got {np.shape(control)}")
        if self.cluster is not None and np.shape(self.cluster) != n:
            raise ValueError(f"want cluster {n}, got {np.shape(self.cluster)}")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"want bounds (least, greatest), got {self.bounds}")

    def by_unit(self) -> tuple[Array, dict[str, Array]]:
        """The mean scores of each unit (u,): of the attack, and of each control."""
        controls = {name: unit_means(finite(name, values), self.cluster) for name, values in self.controls.items()}
        return unit_means(finite("attack", self.attack), self.cluster), controls

    def leads(self) -> Array:
        """(u, B): the attack's mean lead over each control, by unit."""
        return _leads(*self.by_unit())


def _leads(attack: Array, controls: dict[str, Array]) -> Array:
    return np.stack([attack - values for values in controls.values()], axis=1)


@dataclass(frozen=True)
class Test:
    """An attack minus its strongest control, over `units` independent units.

    Attributes:
        difference: Least mean difference over controls: the lead.
        lower: min_b L_b, each at 97.5 %. None where a control allows none.
        upper: min_b U_b, each at 97.5 %. None where no control allows one.
        p: max_b p_b (intersection-union), before the correction for multiplicity; None with fewer than 2 units.
        strongest_control: The control of the least difference.
        resolution: The smallest true lead that is found with probability 0.8; None where no lead has variance.
        reach: Least and greatest difference that the metric allows.
        reason: Why p or a bound is None.
    """

    difference: float
    lower: float | None
    upper: float | None
    p: float | None
    units: int
    strongest_control: str
    per_control: dict[str, Comparison]
    resolution: float | None = None
    reach: tuple[float, float] | None = None
    reason: str | None = None

    def interval(self, error: float) -> tuple[float, float] | None:
        """Two-sided interval of the lead over the strongest control at level 1 - `error`, cut to the metric's reach.

        Student's t, widened to the bounds of the test; None where the test has no bounds, as of constant leads.
        """
        one = self.per_control[self.strongest_control]
        if one.se is None or one.lower is None or one.upper is None:
            return None
        half = -float(special.stdtrit(self.units - 1, error / 2)) * one.se
        low, high = self.reach or (-math.inf, math.inf)
        return max(low, min(one.lower, self.difference - half)), min(high, max(one.upper, self.difference + half))


def test(hypothesis: Hypothesis, rng: np.random.Generator, resamples: int, *, sharp: bool = True) -> Test:  # noqa: PT028
    """Tests whether the attack beats every control.

    Args:
        hypothesis: Scores of the attack and of its controls.
        rng: Of the resampling.
        resamples: R of the bootstrap, at least 400 times the number of tests in the report's family.
        sharp: Whether the resolution is computed too.
    """
    bounds = hypothesis.bounds
    reach = (bounds[0] - bounds[1], bounds[1] - bounds[0]) if bounds else None
    attack, controls = hypothesis.by_unit()
    d = _leads(attack, controls)
    units = len(d)
    if units < 2:
        shown = [Comparison(float(value), None, None, None) for value in d.mean(axis=0)]
    else:
        hits = bounds is not None and bool(np.isin(attack, bounds).all())
        shown = compare(d, LEVEL, rng, resamples, reach, varied=bool(np.ptp(attack) > 0), hits=hits)
    found = dict(zip(controls, shown, strict=True))
    strongest = min(found, key=lambda name: found[name].difference)
    difference = found[strongest].difference
    if units < 2:
        return Test(difference, None, None, None, units, strongest, found, reason=f"want at least 2 units, got {units}")
    ps = [c.p for c in found.values() if c.p is not None]
    lowers = [c.lower for c in found.values() if c.lower is not None]
    uppers = [c.upper for c in found.values() if c.upper is not None]
    lower = min(lowers) if len(lowers) == len(found) else None
    upper = min(uppers) if uppers else None
    reason = "too many equal differences for a bound" if lower is None or upper is None else None
    least = resolution(attack, controls, bounds) if sharp else None
    return Test(difference, lower, upper, max(ps), units, strongest, found, least, reach, reason)
