"""Tests whether an attack beats every control that its threat model grants."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fdgpriv.statistics.interval import Array, finite, unit_means
from fdgpriv.statistics.paired import LEVEL, ControlTest, compare
from fdgpriv.statistics.resolution import resolution

NoBound: TypeAlias = Literal["artifact_not_used", "not_above_control", "equal_differences"]

NO_OTHER_CLIENT = "no other client of the domain exists, so a leak of the client cannot be told from one of the domain"


@dataclass(frozen=True, eq=False)
class LeadTest:
    """One attack against the controls that its threat model grants, all fixed before the run and paired over targets.

    Args:
        attack: Metric per target (n,), oriented so that higher leaks (turn the sign of LPIPS or MSE).
        controls: The same metric per target (n,) for each control.
        cluster: The independent unit (client, artifact) of each target (n,); None where every target is one.
        bounds: Least and greatest value of the metric, as (0, 1) for hits. Without it a 0/1 metric with rare or
            near-certain success has no upper bound.
        shared_variance: By control, the variance of the mean lead over it from images that units share; 0 by default.
        artifact_used: Whether any of the attack's predictions differs from what it predicts without the artifact.
    """

    attack: Array
    controls: dict[str, Array]
    cluster: NDArray[Any] | None = None
    bounds: tuple[float, float] | None = None
    shared_variance: Mapping[str, float] = field(default_factory=dict)
    artifact_used: bool = True

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

    @property
    def shared(self) -> Array:
        """(B,): the variance of each mean lead from images that units share."""
        return np.asarray([self.shared_variance.get(name, 0.0) for name in self.controls])


def _leads(attack: Array, controls: dict[str, Array]) -> Array:
    return np.stack([attack - values for values in controls.values()], axis=1)


@dataclass(frozen=True)
class Test:
    """An attack minus its strongest control, over `units` independent units.

    Attributes:
        difference: Least mean difference over controls: the lead.
        lower: min_b L_b, each at 97.5 %. None where a control allows none.
        upper: Larger leads are excluded: min_b U_b, each at level .025/B for B controls, so that the least of them is right
            in 97.5 % of runs whichever controls are equally strong. None where nothing is excluded.
        no_bound: Why `upper` is None: the attack did not use the artifact, so that its lead is 0 by construction; the bound
            is not above 0; or too many differences are equal.
        p: max_b p_b (intersection-union), before the correction for multiplicity; None with fewer than 2 units.
        strongest_control: The control of the least difference.
        resolution: The smallest true lead that is found with probability 0.8; None where no lead has variance.
        reach: Least and greatest difference that the metric allows.
        reason: Why p is None.
    """

    difference: float
    lower: float | None
    upper: float | None
    p: float | None
    units: int
    strongest_control: str
    per_control: dict[str, ControlTest]
    resolution: float | None = None
    reach: tuple[float, float] | None = None
    no_bound: NoBound | None = None
    reason: str | None = None

    @property
    def rests_on_planted_leak(self) -> bool:
        """Whether a planted leak alone can say that a leak would have been found, as no lead is excluded."""
        return self.no_bound in ("artifact_not_used", "not_above_control")

    def interval(self, error: float) -> tuple[float, float] | None:
        """Two-sided interval of the lead over the strongest control at level 1 - `error`, cut to the metric's reach.

        Student's t, widened to the bounds of the test; None where the test has no bounds, as of constant leads, and where
        the lead is 0 by construction.
        """
        lead = self.per_control[self.strongest_control]
        if lead.se is None or lead.lower is None or lead.upper is None:
            return None
        if self.no_bound == "artifact_not_used" and lead.lower == lead.upper:
            return None
        half = -float(special.stdtrit(self.units - 1, error / 2)) * lead.se
        low, high = self.reach or (-math.inf, math.inf)
        return max(low, min(lead.lower, self.difference - half)), min(high, max(lead.upper, self.difference + half))


def test(lead_test: LeadTest, rng: np.random.Generator, resamples: int, *, sharp: bool = True) -> Test:  # noqa: PT028
    """Tests whether the attack beats every control.

    Args:
        lead_test: Scores of the attack and of its controls.
        rng: Of the resampling.
        resamples: R of the bootstrap, at least 400 times the number of tests in the report's family.
        sharp: Whether the resolution is computed too.
    """
    bounds = lead_test.bounds
    reach = (bounds[0] - bounds[1], bounds[1] - bounds[0]) if bounds else None
    attack, controls = lead_test.by_unit()
    leads = _leads(attack, controls)
    units = len(leads)
    if units < 2:
        comparisons = [ControlTest(float(value), None, None, None) for value in leads.mean(axis=0)]
    else:
        hits = bounds is not None and bool(np.isin(attack, bounds).all())
        comparisons = compare(
            leads,
            LEVEL / leads.shape[1],
            rng,
            resamples,
            reach,
            varied=bool(np.ptp(attack) > 0),
            hits=hits,
            shared_variance=lead_test.shared,
        )
    per_control = dict(zip(controls, comparisons, strict=True))
    strongest = min(per_control, key=lambda name: per_control[name].difference)
    difference = per_control[strongest].difference
    if units < 2:
        reason = f"want at least 2 units, got {units}"
        return Test(difference, None, None, None, units, strongest, per_control, reason=reason)
    ps = [c.p for c in comparisons if c.p is not None]
    lowers = [c.lower for c in comparisons if c.lower is not None]
    uppers = [c.excluded for c in comparisons if c.excluded is not None]
    upper = min(uppers, default=None)
    no_bound = _no_bound(upper, lead_test.artifact_used)
    return Test(
        difference,
        min(lowers) if len(lowers) == len(comparisons) else None,
        None if no_bound else upper,
        max(ps),
        units,
        strongest,
        per_control,
        resolution(attack, controls, bounds, lead_test.shared) if sharp else None,
        reach,
        no_bound,
    )


def _no_bound(upper: float | None, artifact_used: bool) -> NoBound | None:
    """Why no lead is excluded; None where larger leads than `upper` are."""
    if not artifact_used:
        return "artifact_not_used"
    if upper is None:
        return "equal_differences"
    return "not_above_control" if upper <= 0 else None
