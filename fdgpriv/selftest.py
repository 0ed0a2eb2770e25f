"""Are the statistics themselves right? False alarms of our rules where nothing leaks, beside rules that must fail.

Run `python -m fdgpriv.selftest`; it ends with 0 if every rule keeps its level and every mistaken rule is caught, else
with 1. What is simulated and how much is allowed: AUDIT.md sections 3 and 7.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fdgpriv.privacy.measured import clopper_pearson, held_out_counts
from fdgpriv.streams import lenient
from fdgpriv.verdict import LEVEL, Line, test

Rng: TypeAlias = np.random.Generator
Scores: TypeAlias = NDArray[np.float64]
Lower: TypeAlias = Callable[[Scores, Scores, Rng], float]

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


def clients(rng: Rng) -> Line:
    """10 clients of 20 images with effects of their own; one control as good as the attack, two far worse."""
    effects = rng.normal(size=(4, 10, 1)) + rng.normal(size=(4, 10, 20))
    attack, even, low, lower = effects.reshape(4, -1) - np.array([[0.0], [0.0], [5.0], [6.0]])
    return Line(attack, {"even": even, "low": low, "lower": lower}, np.repeat(np.arange(10), 20))


def images(rng: Rng) -> Line:
    """60 independent units of unequal difficulty, and one control as good as the attack."""
    attack, even = rng.normal(size=(2, 60)) + 3 * rng.normal(size=60)
    return Line(attack, {"even": even})


def exchangeable(rng: Rng) -> Line:
    """16 units and eight controls, each as good as the attack."""
    attack, *controls = rng.normal(size=(9, 16))
    return Line(attack, {f"control {i}": values for i, values in enumerate(controls)})


def hits(rng: Rng) -> Line:
    """40 units that the attack and two controls identify with probability 0.2."""
    attack, one, other = (rng.random((3, 40)) < 0.2).astype(float)
    return Line(attack, {"one": one, "other": other}, bounds=(0.0, 1.0))


def rare_hits(rng: Rng) -> Line:
    """12 units that the attack and its control identify with probability 0.1."""
    attack, even = (rng.random((2, 12)) < 0.1).astype(float)
    return Line(attack, {"even": even}, bounds=(0.0, 1.0))


def skewed(rng: Rng) -> Line:
    """60 units whose metric has rare failures far below, against a control that always gets the mean."""
    return Line(2 - rng.gamma(2, size=60), {"constant": np.zeros(60)})


NULLS: Mapping[str, Callable[[Rng], Line]] = {
    build.__name__: build for build in (clients, images, exchangeable, hits, rare_hits, skewed)
}


def rule(line: Line, rng: Rng) -> float:
    """The p of our rule."""
    p = test(line, rng, RESAMPLES).p
    return 1.0 if p is None else p


def best_control_only(line: Line, rng: Rng) -> float:
    """Mistaken: the p of the comparison that came out best."""
    return min(c.p or 0.0 for c in test(line, rng, RESAMPLES).per_control.values())


def resample_images(line: Line, rng: Rng) -> float:
    """Mistaken: takes the images of a client for independent."""
    return rule(replace(line, cluster=None), rng)


def held_out(inside: Scores, outside: Scores, rng: Rng) -> float:
    """Our lower bound on epsilon at delta = 0."""
    return clopper_pearson(held_out_counts(inside, outside, 0.0, rng), 0.0).epsilon or 0.0


def best_of_all_thresholds(inside: Scores, outside: Scores, rng: Rng) -> float:
    """Mistaken: the highest Clopper-Pearson bound over 1,001 thresholds, chosen and tested on the same draws."""
    pooled = np.sort(np.concatenate([inside, outside]))
    thresholds = pooled[np.linspace(0, len(pooled) - 2, 1001).astype(int)]
    missed = np.searchsorted(np.sort(inside), thresholds, side="right")
    accused = len(outside) - np.searchsorted(np.sort(outside), thresholds, side="right")
    fpr, fnr = (special.betainccinv(k + 1, len(inside) - k, 0.025) for k in (accused, missed))
    sides = np.log([(1 - fnr) / fpr, (1 - fpr) / fnr])
    return max(0.0, float(np.nanmax(sides)))


def verdict_alarms(build: Callable[[Rng], Line], p: Callable[[Line, Rng], float], runs: int, rng: Rng) -> int:
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


def table(found: list[Check]) -> str:
    """The checks as a Markdown table."""
    rows = [
        f"| {c.name} | {c.alarms} of {c.runs} | {'more than' if c.mistaken else 'at most'} {c.allowed} "
        f"| {'pass' if c.passed else 'FAIL'} |"
        for c in found
    ]
    return "\n".join(["| check | false alarms | wanted | |", "|---|---|---|---|", *rows])


def main(argv: list[str] | None = None) -> int:
    """The command line: prints the table, returns 0 if all pass and 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m fdgpriv.selftest", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--runs", type=int, help="of every check (default: 1000 verdicts, 400 epsilons); fewer may fail by chance"
    )
    parser.add_argument("--draws", type=int, default=DRAWS, help="T, per world and run of the epsilon checks")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    if options.runs is not None and options.runs < 1:
        parser.error(f"want --runs >= 1, got {options.runs}")
    if options.draws < 4:
        parser.error(f"want --draws >= 4, got {options.draws}")
    rng = np.random.default_rng(options.seed)
    found = checks(options.runs or VERDICT_RUNS, options.runs or EPSILON_RUNS, options.draws, rng)
    with lenient():
        print(table(found))
    return 0 if all(check.passed for check in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
