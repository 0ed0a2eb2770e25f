"""False alarms of the verdict rule on simulated scores, and of mistaken rules that must fail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.rule import LeadTest, test

Rng: TypeAlias = np.random.Generator

RESAMPLES = 400
"""Of the bootstrap: 400 for a family of one test."""

RUNS, ALARMS = 1000, 0.04


@dataclass(frozen=True)
class Check:
    """How often a rule raised an alarm where none is due; what is mistaken on purpose has to do it more often than allowed.

    Attributes:
        name: The rule, and what it was tried on.
        alarms: Runs with an alarm.
        runs: All runs.
        allowed: The most alarms of what is right, and fewer than those of what is mistaken.
        mistaken: Whether an alarm is due: a wrong rule, or too little noise.
    """

    name: str
    alarms: int
    runs: int
    allowed: int
    mistaken: bool = False

    @property
    def passed(self) -> bool:
        """Whether our rule keeps its level, or a mistaken one is caught."""
        return (self.alarms > self.allowed) == self.mistaken


def clients(rng: Rng) -> LeadTest:
    """10 clients of 20 images with effects of their own; one control as good as the attack, two far worse."""
    effects = rng.normal(size=(4, 10, 1)) + rng.normal(size=(4, 10, 20))
    attack, even, low, lower = effects.reshape(4, -1) - np.array([[0.0], [0.0], [5.0], [6.0]])
    return LeadTest(attack, {"even": even, "low": low, "lower": lower}, np.repeat(np.arange(10), 20))


def images(rng: Rng) -> LeadTest:
    """60 independent units of unequal difficulty, and one control as good as the attack."""
    attack, even = rng.normal(size=(2, 60)) + 3 * rng.normal(size=60)
    return LeadTest(attack, {"even": even})


def exchangeable(rng: Rng) -> LeadTest:
    """16 units and eight controls, each as good as the attack."""
    attack, *controls = rng.normal(size=(9, 16))
    return LeadTest(attack, {f"control {i}": values for i, values in enumerate(controls)})


def hits(rng: Rng) -> LeadTest:
    """40 units that the attack and two controls identify with probability 0.2."""
    attack, first, second = (rng.random((3, 40)) < 0.2).astype(float)
    return LeadTest(attack, {"one": first, "other": second}, bounds=(0.0, 1.0))


def rare_hits(rng: Rng) -> LeadTest:
    """12 units that the attack and its control identify with probability 0.1."""
    attack, even = (rng.random((2, 12)) < 0.1).astype(float)
    return LeadTest(attack, {"even": even}, bounds=(0.0, 1.0))


def skewed(rng: Rng) -> LeadTest:
    """60 units whose metric has rare failures far below, against a control that always gets the mean."""
    return LeadTest(2 - rng.gamma(2, size=60), {"constant": np.zeros(60)})


NULLS: Mapping[str, Callable[[Rng], LeadTest]] = {
    build.__name__: build for build in (clients, images, exchangeable, hits, rare_hits, skewed)
}


def rule(line: LeadTest, rng: Rng) -> float:
    """The p of our rule."""
    p = test(line, rng, RESAMPLES, sharp=False).p
    return 1.0 if p is None else p


def best_control_only(line: LeadTest, rng: Rng) -> float:
    """Mistaken: the p of the comparison that came out best."""
    return min(c.p or 0.0 for c in test(line, rng, RESAMPLES, sharp=False).per_control.values())


def resample_images(line: LeadTest, rng: Rng) -> float:
    """Mistaken: takes the images of a client for independent."""
    return rule(replace(line, cluster=None), rng)


def verdict_alarms(build: Callable[[Rng], LeadTest], p: Callable[[LeadTest, Rng], float], runs: int, rng: Rng) -> int:
    """Runs without a leak in which the rule says LEAK."""
    return sum(p(build(rng), rng) <= LEVEL for _ in range(runs))


def verdict_checks(runs: int, rng: Rng) -> list[Check]:
    """All checks; each draws from a stream of its own."""
    allowed = int(ALARMS * runs)
    checks = []
    for name, build in NULLS.items():
        alarms = verdict_alarms(build, rule, runs, rng.spawn(1)[0])
        checks.append(Check(f"verdict, {name}", alarms, runs, allowed))
    for build, naive, name in (
        (exchangeable, best_control_only, "only the control that came out best"),
        (clients, resample_images, "resampling images, not clients"),
    ):
        alarms = verdict_alarms(build, naive, runs, rng.spawn(1)[0])
        checks.append(Check(f"mistaken: {name}", alarms, runs, allowed, mistaken=True))
    return checks
