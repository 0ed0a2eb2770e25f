"""False alarms of the verdict rule and of the bound on epsilon on simulated draws, and of mistaken rules that must fail."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fdgpriv.privacy.measured import counting_bound, held_out_counts
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.rule import Hypothesis, test

Rng: TypeAlias = np.random.Generator
ScoresByName: TypeAlias = NDArray[np.float64]
Lower: TypeAlias = Callable[[ScoresByName, ScoresByName, Rng], float]

RESAMPLES = 400
"""Of the bootstrap: 400 for a family of one test."""

VERDICT_RUNS, VERDICT_ALARMS = 1000, 0.04
EPSILON_RUNS, EPSILON_ALARMS = 400, 0.03
DRAWS = 100_000


@dataclass(frozen=True)
class Check:
    """How often a rule raised an alarm though nothing leaked; a mistaken rule has to do it more often than allowed."""

    name: str
    alarms: int
    runs: int
    allowed: int
    mistaken: bool = False

    @property
    def passed(self) -> bool:
        """Whether our rule keeps its level, or a mistaken one is caught."""
        return (self.alarms > self.allowed) == self.mistaken


def clients(rng: Rng) -> Hypothesis:
    """10 clients of 20 images with effects of their own; one control as good as the attack, two far worse."""
    effects = rng.normal(size=(4, 10, 1)) + rng.normal(size=(4, 10, 20))
    attack, even, low, lower = effects.reshape(4, -1) - np.array([[0.0], [0.0], [5.0], [6.0]])
    return Hypothesis(attack, {"even": even, "low": low, "lower": lower}, np.repeat(np.arange(10), 20))


def images(rng: Rng) -> Hypothesis:
    """60 independent units of unequal difficulty, and one control as good as the attack."""
    attack, even = rng.normal(size=(2, 60)) + 3 * rng.normal(size=60)
    return Hypothesis(attack, {"even": even})


def exchangeable(rng: Rng) -> Hypothesis:
    """16 units and eight controls, each as good as the attack."""
    attack, *controls = rng.normal(size=(9, 16))
    return Hypothesis(attack, {f"control {i}": values for i, values in enumerate(controls)})


def hits(rng: Rng) -> Hypothesis:
    """40 units that the attack and two controls identify with probability 0.2."""
    attack, one, other = (rng.random((3, 40)) < 0.2).astype(float)
    return Hypothesis(attack, {"one": one, "other": other}, bounds=(0.0, 1.0))


def rare_hits(rng: Rng) -> Hypothesis:
    """12 units that the attack and its control identify with probability 0.1."""
    attack, even = (rng.random((2, 12)) < 0.1).astype(float)
    return Hypothesis(attack, {"even": even}, bounds=(0.0, 1.0))


def skewed(rng: Rng) -> Hypothesis:
    """60 units whose metric has rare failures far below, against a control that always gets the mean."""
    return Hypothesis(2 - rng.gamma(2, size=60), {"constant": np.zeros(60)})


NULLS: Mapping[str, Callable[[Rng], Hypothesis]] = {
    build.__name__: build for build in (clients, images, exchangeable, hits, rare_hits, skewed)
}


def rule(line: Hypothesis, rng: Rng) -> float:
    """The p of our rule."""
    p = test(line, rng, RESAMPLES, sharp=False).p
    return 1.0 if p is None else p


def best_control_only(line: Hypothesis, rng: Rng) -> float:
    """Mistaken: the p of the comparison that came out best."""
    return min(c.p or 0.0 for c in test(line, rng, RESAMPLES, sharp=False).per_control.values())


def resample_images(line: Hypothesis, rng: Rng) -> float:
    """Mistaken: takes the images of a client for independent."""
    return rule(replace(line, cluster=None), rng)


def held_out(inside: ScoresByName, outside: ScoresByName, rng: Rng) -> float:
    """Our lower bound on epsilon at delta = 0."""
    return counting_bound(held_out_counts(inside, outside, 0.0, rng), 0.0).epsilon or 0.0


def best_of_all_thresholds(inside: ScoresByName, outside: ScoresByName, rng: Rng) -> float:
    """Mistaken: the highest Clopper-Pearson bound over 1,001 thresholds, chosen and tested on the same draws."""
    pooled = np.sort(np.concatenate([inside, outside]))
    thresholds = pooled[np.linspace(0, len(pooled) - 2, 1001).astype(int)]
    missed = np.searchsorted(np.sort(inside), thresholds, side="right")
    accused = len(outside) - np.searchsorted(np.sort(outside), thresholds, side="right")
    fpr, fnr = (special.betainccinv(k + 1, len(inside) - k, 0.025) for k in (accused, missed))
    sides = np.log([(1 - fnr) / fpr, (1 - fpr) / fnr])
    return max(0.0, float(np.nanmax(sides)))


def verdict_alarms(
    build: Callable[[Rng], Hypothesis], p: Callable[[Hypothesis, Rng], float], runs: int, rng: Rng
) -> int:
    """Runs without a leak in which the rule says LEAK."""
    return sum(p(build(rng), rng) <= LEVEL for _ in range(runs))


def epsilon_alarms(epsilon: float, bounds: Sequence[Lower], runs: int, draws: int, rng: Rng) -> list[int]:
    """Runs in which each bound exceeds the true epsilon of a Laplace release of sensitivity 1 (eps = 0: of nothing).

    A pure epsilon at delta = 0, for the slack of delta = 1e-5 in a Gaussian release hides an uncorrected maximum.
    """
    alarms = [0] * len(bounds)
    for _ in range(runs):
        inside, outside = rng.laplace(size=(2, draws)) if epsilon else rng.random((2, draws))
        for index, bound in enumerate(bounds):
            alarms[index] += bound(inside + epsilon, outside, rng) > epsilon
    return alarms


def checks(verdict_runs: int, epsilon_runs: int, draws: int, rng: Rng) -> list[Check]:
    """All checks; each draws from a stream of its own."""
    found = []
    allowed = int(VERDICT_ALARMS * verdict_runs)
    for name, build in NULLS.items():
        alarms = verdict_alarms(build, rule, verdict_runs, rng.spawn(1)[0])
        found.append(Check(f"verdict, {name}", alarms, verdict_runs, allowed))
    for build, naive, name in (
        (exchangeable, best_control_only, "only the control that came out best"),
        (clients, resample_images, "resampling images, not clients"),
    ):
        alarms = verdict_alarms(build, naive, verdict_runs, rng.spawn(1)[0])
        found.append(Check(f"mistaken: {name}", alarms, verdict_runs, allowed, mistaken=True))
    allowed = int(EPSILON_ALARMS * epsilon_runs)
    for epsilon in (0.0, 1.0):
        ours, mistaken = epsilon_alarms(
            epsilon, (held_out, best_of_all_thresholds), epsilon_runs, draws, rng.spawn(1)[0]
        )
        name = f"maximum over thresholds, truth {epsilon:g}"
        found.append(Check(f"epsilon bound, truth {epsilon:g}", ours, epsilon_runs, allowed))
        found.append(Check(f"mistaken: {name}", mistaken, epsilon_runs, allowed, mistaken=True))
    return found
