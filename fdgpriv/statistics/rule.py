"""The decision rule: an attack leaks if it beats every control, fails only if it could win."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fdgpriv.statistics.interval import Array, finite, unit_means
from fdgpriv.statistics.paired import LEVEL, Comparison, compare

Verdict: TypeAlias = Literal["leak", "no_leak_found", "inconclusive", "not_applicable"]

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


@dataclass(frozen=True)
class Test:
    """What the line shows: attack minus its strongest control, over `units` independent units.

    Attributes:
        difference: Least mean difference over controls.
        lower: min_b L_b, each at 97.5 %. None where a control allows none.
        upper: min_b U_b, each at level 1 - 0.025 / |B|. None where no control allows one.
        p: max_b p_b (intersection-union), before the correction for multiplicity; None with fewer than 2 units.
        strongest_control: The control of the least difference.
        reason: Why p or a bound is None.
    """

    difference: float
    lower: float | None
    upper: float | None
    p: float | None
    units: int
    strongest_control: str
    per_control: dict[str, Comparison]
    reason: str | None = None


def test(line: Hypothesis, rng: np.random.Generator, resamples: int) -> Test:
    """Tests whether the attack beats every control.

    Args:
        resamples: R of the bootstrap, at least 400 times the number of tests in the report's family.
    """
    attack = finite("attack", line.attack)
    reach = (line.bounds[0] - line.bounds[1], line.bounds[1] - line.bounds[0]) if line.bounds else None
    columns = [unit_means(attack - finite(name, control), line.cluster) for name, control in line.controls.items()]
    d = np.stack(columns, axis=1)
    units, tail = len(d), LEVEL / len(columns)
    if units < 2:
        shown = [Comparison(float(value), None, None, None) for value in d.mean(axis=0)]
    else:
        shown = compare(d, tail, rng, resamples, reach)
    found = dict(zip(line.controls, shown, strict=True))
    strongest = min(found, key=lambda name: found[name].difference)
    difference = found[strongest].difference
    if units < 2:
        return Test(difference, None, None, None, units, strongest, found, f"want at least 2 units, got {units}")
    ps = [c.p for c in found.values() if c.p is not None]
    lowers = [c.lower for c in found.values() if c.lower is not None]
    uppers = [c.upper for c in found.values() if c.upper is not None]
    lower = min(lowers) if len(lowers) == len(found) else None
    upper = min(uppers) if uppers else None
    reason = "too many equal differences for a bound" if lower is None or upper is None else None
    return Test(difference, lower, upper, max(ps), units, strongest, found, reason)


def decide(test: Test, p_corrected: float | None, positive: float | None, budget: str = "") -> tuple[Verdict, str]:
    """The verdict in a word, and its reason in a sentence.

    Args:
        p_corrected: The test's p after Holm; None where it has no p.
        positive: The positive control's p after Holm, same attack and same budget; None where there is none.
        budget: The attack's budget in words ("200 steps, 1,300 auxiliary images"), for the reason.
    """
    if test.p is None or p_corrected is None:
        return "inconclusive", test.reason or "the test has no p"
    if p_corrected <= LEVEL:
        least = "" if test.lower is None else f", at least {test.lower:.3g}"
        return "leak", (
            f"beats every control, the strongest ({test.strongest_control}) by {test.difference:.3g}{least}, "
            f"over {test.units} units (corrected p = {p_corrected:.2g})"
        )
    if test.p <= LEVEL:
        return "inconclusive", (
            f"p = {test.p:.2g} before the correction for multiplicity, {p_corrected:.2g} after; want more units than "
            f"{test.units}"
        )
    if 0.5**test.units > LEVEL:
        return "inconclusive", f"{test.units} units cannot reach p <= {LEVEL}; want at least 6"
    if positive is None:
        return "inconclusive", "no positive control says that the attack could succeed"
    if positive > LEVEL:
        spent = f" with {budget}" if budget else ""
        return "inconclusive", (
            f"the attack failed even on its positive control{spent} (corrected p = {positive:.2g}); want a larger "
            "budget or more units"
        )
    excluded = (
        f"leakage above {test.upper:.3g} is excluded" if test.upper is not None else f"no upper bound: {test.reason}"
    )
    return "no_leak_found", f"{excluded} (p = {test.p:.2g} over {test.units} units, and the positive control leaks)"
