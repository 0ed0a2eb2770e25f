"""Tests whether an attack beats every control that its threat model grants."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fdgpriv.statistics.interval import Array, finite, unit_means
from fdgpriv.statistics.paired import LEVEL, ControlTest, compare
from fdgpriv.statistics.resolution import resolution

NoBound: TypeAlias = Literal["artifact_not_used", "not_above_control", "equal_differences"]

ONE_DOMAIN = "all clients are of one domain, so there is no other to tell it from"
WORSE_LEVEL = 0.05  # one-sided, uncorrected, that an attack is worse than a control
_DEFICIT_RESAMPLES = 2000

NO_OTHER_CLIENT = "no other client of the domain exists, so a leak of the client cannot be told from one of the domain"


@dataclass(frozen=True, eq=False)
class LeadTest:
    """Scores of one attack and of the controls that its threat model grants, paired over trials.

    Args:
        attack: Metric per trial (n,), oriented so that higher leaks (turn the sign of LPIPS or MSE).
        controls: The same metric per trial (n,) for each control.
        cluster: The independent unit (client, artifact) of each trial (n,); None if every trial is a unit.
        bounds: Smallest and largest value of the metric, as (0, 1) for hits. Without it a 0/1 metric with rare or
            near-certain success has no upper bound.
        shared_variance: By control, the variance of the mean lead over it due to images that units share; 0 by default.
        artifact_used: Whether any of the attack's predictions differs from its artifact-free prediction.
        artifact_free: The controls that are predictions without any artifact.
    """

    attack: Array
    controls: dict[str, Array]
    cluster: NDArray[Any] | None = None
    bounds: tuple[float, float] | None = None
    shared_variance: Mapping[str, float] = field(default_factory=dict)
    artifact_used: bool = True
    artifact_free: Collection[str] = ()

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
    def reach(self) -> tuple[float, float] | None:
        """Smallest and largest difference that the metric allows; None without bounds."""
        return None if self.bounds is None else (self.bounds[0] - self.bounds[1], self.bounds[1] - self.bounds[0])

    @property
    def shared(self) -> Array:
        """(B,): the variance of each mean lead due to images that units share."""
        return np.asarray([self.shared_variance.get(name, 0.0) for name in self.controls])


def _leads(attack: Array, controls: dict[str, Array]) -> Array:
    """(u, B): the attack's lead over each control, by unit."""
    return np.stack([attack - values for values in controls.values()], axis=1)


@dataclass(frozen=True)
class Deficit:
    """By how much an attack is worse than a control, and the one-sided p of that."""

    control: str
    difference: float
    p: float


@dataclass(frozen=True)
class Test:
    """An attack minus its strongest control, over `units` independent units.

    Attributes:
        difference: Smallest mean difference over controls: the lead.
        lower: min_b L_b, each at 97.5 %. None if a control has no lower bound.
        upper: Upper bound on the lead: min_b U_b, each at level .025/B for B controls, so that the smallest one holds in
            97.5 % of runs even if several controls are equally strong. None if no lead is excluded.
        no_bound: The reason why `upper` is None: the attack did not use the artifact, so that its lead is 0 by construction;
            the bound is not above 0; or too many differences are equal.
        p: max_b p_b (intersection-union), before the correction for multiplicity; None with fewer than 2 units.
        strongest_control: The control with the smallest difference.
        resolution: The smallest true lead that is found with probability 0.8; None if no lead has variance.
        reach: Smallest and largest difference that the metric allows.
        reason: The reason why p is None.
        deficit: Of the artifact-free control that the attack is most clearly worse than, if it is at p < 0.05.
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
    deficit: Deficit | None = None

    @property
    def rests_on_planted_leak(self) -> bool:
        """Whether only a planted leak can show that a leak would have been found, since no lead is excluded."""
        return self.no_bound in ("artifact_not_used", "not_above_control")

    def interval(self, error: float) -> tuple[float, float] | None:
        """Two-sided interval of the lead over the strongest control at level 1 - `error`, within the metric's reach.

        Student's t, widened to the bounds of the test. None if the test has no bounds (constant leads), or the lead is 0 by
        construction.
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
        rng: Random numbers of the resampling.
        resamples: R of the bootstrap, at least 400 times the number of tests in the report's family.
        sharp: Whether to compute the resolution too.
    """
    attack, controls = lead_test.by_unit()
    units = len(attack)
    per_control = dict(zip(controls, _control_tests(lead_test, rng, resamples), strict=True))
    strongest = min(per_control, key=lambda name: per_control[name].difference)
    difference = per_control[strongest].difference
    if units < 2:
        reason = f"want at least 2 units, got {units}"
        return Test(difference, None, None, None, units, strongest, per_control, reason=reason)
    tests = per_control.values()
    lowers = [test.lower for test in tests if test.lower is not None]
    upper = min((test.excluded for test in tests if test.excluded is not None), default=None)
    no_bound = _no_bound(upper, lead_test.artifact_used)
    return Test(
        difference,
        lower=min(lowers) if len(lowers) == len(tests) else None,
        upper=None if no_bound else upper,
        p=max(test.p for test in tests if test.p is not None),
        units=units,
        strongest_control=strongest,
        per_control=per_control,
        resolution=resolution(attack, controls, lead_test.bounds, lead_test.shared) if sharp else None,
        reach=lead_test.reach,
        no_bound=no_bound,
        deficit=_deficit(lead_test, per_control),
    )


def _deficit(lead_test: LeadTest, per_control: Mapping[str, ControlTest]) -> Deficit | None:
    """The smallest p < 0.05 that the attack is worse than an artifact-free control, by the same tests with signs turned."""
    behind = [
        name for name in lead_test.controls if name in lead_test.artifact_free and per_control[name].difference < 0
    ]
    if not behind:
        return None
    reversed_test = replace(
        lead_test,
        attack=-np.asarray(lead_test.attack),
        controls={name: -np.asarray(lead_test.controls[name]) for name in behind},
        bounds=None if lead_test.bounds is None else (-lead_test.bounds[1], -lead_test.bounds[0]),
    )
    tests = _control_tests(reversed_test, np.random.default_rng(0), _DEFICIT_RESAMPLES)
    deficits = [
        Deficit(name, test.difference, 1.0 if test.p is None else test.p)
        for name, test in zip(behind, tests, strict=True)
    ]
    smallest = min(deficits, key=lambda deficit: deficit.p)
    return smallest if smallest.p < WORSE_LEVEL else None


def _control_tests(lead_test: LeadTest, rng: np.random.Generator, resamples: int) -> list[ControlTest]:
    """The test against each control; without bounds and p for fewer than 2 units."""
    attack, controls = lead_test.by_unit()
    leads = _leads(attack, controls)
    if len(leads) < 2:
        return [ControlTest(float(value), None, None, None) for value in leads.mean(axis=0)]
    bounds = lead_test.bounds
    return compare(
        leads,
        LEVEL / leads.shape[1],
        rng,
        resamples,
        lead_test.reach,
        varied=bool(np.ptp(attack) > 0),
        hits=bounds is not None and bool(np.isin(attack, bounds).all()),
        shared_variance=lead_test.shared,
    )


def _no_bound(upper: float | None, artifact_used: bool) -> NoBound | None:
    """The reason why no lead is excluded; None if leads above `upper` are."""
    if not artifact_used:
        return "artifact_not_used"
    if upper is None:
        return "equal_differences"
    return "not_above_control" if upper <= 0 else None
