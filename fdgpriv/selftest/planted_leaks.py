"""How often leaks planted in A/A reports are found, by their weight.

A leak of weight w: with probability w, a client's scores are those of its positive control. The clients of each report
are drawn anew with replacement.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_tests import attack_tests
from fdgpriv.selftest.false_leaks import NullReport
from fdgpriv.selftest.null_reports import ByName, Evaluation, Rng, mixed, permuted
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import Evidence
from fdgpriv.statistics.resolution import POWER

WITHIN = 0.1  # of POWER
_TRIED = 3  # attacks on one secret
_STEPS = 3  # of the search for the weight
_RESOLUTIONS, _OF_HITS = 40, 10  # reports whose printed resolution is averaged; fewer where it is simulated
_TRUE = 400  # draws that give the true lead
_NOISE = 0.05  # by which a rate may fall by chance


@dataclass(frozen=True)
class Power:
    """How often one attack's planted leak is found.

    Attributes:
        secret, attack, key, scope: Of the attack.
        weight: At which the true lead is the printed resolution.
        lead: That lead.
        weights: Some weights, ascending, `weight` among them.
        found: P(p <= 0.025) at each.
        leaks: P(LEAK) of the question in a whole report at each.
    """

    secret: str
    attack: str
    key: str
    scope: str
    weight: float
    lead: float
    weights: tuple[float, ...]
    found: tuple[float, ...]
    leaks: tuple[float, ...]

    @property
    def at(self) -> int:
        """The place of `weight` among the weights."""
        return self.weights.index(self.weight)

    @property
    def rises(self) -> bool:
        """Whether larger leaks are found more often."""
        return all(b >= a - _NOISE for some in (self.found, self.leaks) for a, b in pairwise(some))

    @property
    def calibrated(self) -> bool:
        """Whether the leak of the printed resolution is found as often as the resolution says."""
        return abs(self.found[self.at] - POWER) <= WITHIN + 1e-9


def passed(found: Sequence[Power], secret: str) -> bool:
    """Whether the resolution of one attack on this secret is calibrated, and all that were tried find larger leaks
    more often.
    """
    some = [one for one in found if one.secret == secret]
    return all(one.rises for one in some) and any(one.calibrated for one in some)


def powers(reports: Mapping[str, Sequence[NullReport]], rng: Rng) -> list[Power]:
    """By secret, of attacks whose planted leak reaches the resolution: the strongest positive control first, until one is
    calibrated or `_TRIED` are not. Secrets of which there is none are left out.

    Args:
        reports: A/A reports by scope.
        rng: Of the planted leaks.
    """
    found = []
    for _, some in sorted(_by_secret(reports).items()):
        tried: list[Power] = []
        for key, scope in some:
            one = reports[scope][0].evaluations[key]
            if len(tried) < _TRIED and not any(other.calibrated for other in tried) and (at := _weight(one, rng)):
                tried.append(_power(key, one, at, [r for r in reports[scope] if key in r.evaluations], rng))
        found += tried
    return found


def _by_secret(reports: Mapping[str, Sequence[NullReport]]) -> dict[str, list[tuple[str, str]]]:
    """The attacks of each secret with a scope that they are tested in, the strongest positive control first."""
    found: dict[str, list[tuple[float, str, str]]] = {}
    for scope, some in reports.items():
        stored = {key: one.one.model_copy(update={"scopes": (scope,)}) for key, one in some[0].evaluations.items()}
        for key, tests in attack_tests(stored, 0, sharp=False).items():
            proof, one = stored[key].undefended, stored[key]
            if proof is None or tests.positive is None:
                continue
            evidence = Evidence(tests.positive, one.relevant_effect(proof), tests.positive)
            if evidence.works:
                found.setdefault(one.secret, []).append((-evidence.strength, key, scope))
    return {secret: [(key, scope) for _, key, scope in sorted(some)] for secret, some in found.items()}


@dataclass(frozen=True, eq=False)
class _Draw:
    """The scores of one evaluation with and without a leak; the leak's draw of each target, and the targets drawn."""

    null: ByName
    leaking: ByName
    draws: np.ndarray[tuple[int], np.dtype[np.float64]]
    chosen: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def of(cls, one: Evaluation, null: ByName, rng: Rng) -> "_Draw":
        u = len(one.whole.units)
        return cls(null, one.leaking(rng), rng.random(u), rng.integers(0, u, u))

    def at(self, one: Evaluation, weight: float) -> AttackScores:
        """The evaluation of the targets drawn, with a leak of this weight."""
        scores = mixed(self.null, self.leaking, self.draws, weight)
        units = [f"{one.whole.units[i]} {n}" for n, i in enumerate(self.chosen)]
        return one.copy({name: values[self.chosen] for name, values in scores.items()}, units)


def _drawn(one: Evaluation, rng: Rng, count: int) -> Iterator[_Draw]:
    for _ in range(count):
        yield _Draw.of(one, one.null(permuted(one.one.domains, one.scope, rng), rng), rng)


def _weight(one: Evaluation, rng: Rng) -> tuple[float, float] | None:
    """The weight at which the true lead equals the mean printed resolution, and that lead; None where none reaches it."""
    ends = []
    for draw in _drawn(one, rng, _TRUE):
        every = [mixed(draw.null, draw.leaking, np.zeros(len(draw.draws)), weight) for weight in (-1.0, 1.0)]
        ends.append([one.leads(scores) for scores in every])
    ends_by_weight = np.asarray(ends).mean(0)  # (2, B)
    weights = np.linspace(0, 1, 1001)
    leads = (np.outer(1 - weights, ends_by_weight[0]) + np.outer(weights, ends_by_weight[1])).min(1)
    few = list(_drawn(one, rng, _OF_HITS if one.hits else _RESOLUTIONS))
    weight = 0.5
    for _ in range(_STEPS):
        printed = _resolution(one, few, weight)
        reached = leads >= printed
        weight = float(weights[reached.argmax()]) if reached.any() else 1.0
    return (weight, printed) if reached.any() else None


def _resolution(one: Evaluation, draws: Sequence[_Draw], weight: float) -> float:
    """The mean resolution that reports with this leak print."""
    copies = {str(i): draw.at(one, weight) for i, draw in enumerate(draws)}
    found = [tests.scopes[one.scope] for tests in attack_tests(copies, 0, resamples=2000).values()]
    printed = [e.test.resolution for e in found if isinstance(e, Evidence) and e.test.resolution is not None]
    return float(np.mean(printed)) if printed else np.inf


def _power(key: str, one: Evaluation, at: tuple[float, float], reports: Sequence[NullReport], rng: Rng) -> Power:
    weight, lead = at
    weights = (0.0, weight / 2, weight, (1 + weight) / 2, 1.0) if weight < 1 else (0.0, weight / 2, weight)
    found, leaks = np.zeros(len(weights)), np.zeros(len(weights))
    for report in reports:
        draw = _Draw.of(one, report.scores[key], rng)
        for i, w in enumerate(weights):
            p, leak = report.outcome(key, draw.at(one, w))
            found[i] += p <= LEVEL
            leaks[i] += leak
    n = len(reports)
    return Power(
        one.one.secret,
        one.one.attack,
        key,
        one.scope,
        weight,
        lead,
        weights,
        tuple((found / n).tolist()),
        tuple((leaks / n).tolist()),
    )
