"""How often leaks planted in A/A reports are found, by their weight.

A leak of weight w: with probability w, a client's scores are those of its positive control. The clients of each report
are drawn anew with replacement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fdgpriv.selftest.false_leaks import NullReport
from fdgpriv.selftest.null_reports import Array, ByName, Evaluation, Rng, mixed, permuted
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import Evidence
from fdgpriv.statistics.resolution import POWER
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.attack_tests import attack_tests

WITHIN = 0.1  # of POWER
_TRIED = 3  # attacks on one secret
_STEPS = 3  # of the search for the weight
_RESOLUTIONS, _OF_HITS = 40, 10  # reports whose printed resolution is averaged; fewer where it is simulated
_TRUE = 400  # permutations
_NOISE = 0.05  # by which a rate may fall by chance


@dataclass(frozen=True)
class Power:
    """How often one attack's planted leak is found.

    Attributes:
        secret, attack, key, scope: Of the attack.
        weight: At which the true lead is the printed resolution.
        lead: That lead.
        weights: Some weights, ascending, `weight` among them.
        found_rates: P(p <= 0.025) at each.
        leaks: P(LEAK) of the question in a whole report at each.
    """

    secret: str
    attack: str
    key: str
    scope: str
    weight: float
    lead: float
    weights: tuple[float, ...]
    found_rates: tuple[float, ...]
    leaks: tuple[float, ...]

    @property
    def at(self) -> int:
        """The place of `weight` among the weights."""
        return self.weights.index(self.weight)

    @property
    def rises(self) -> bool:
        """Whether larger leaks are found more often."""
        return all(b >= a - _NOISE for rates in (self.found_rates, self.leaks) for a, b in pairwise(rates))

    @property
    def calibrated(self) -> bool:
        """Whether the leak of the printed resolution is found as often as the resolution says."""
        return abs(self.found_rates[self.at] - POWER) <= WITHIN + 1e-9


def passed(powers: Sequence[Power], secret: str) -> bool:
    """Whether one attack's resolution on this secret is calibrated, and all tried ones find larger leaks more often."""
    of_secret = [power for power in powers if power.secret == secret]
    return all(power.rises for power in of_secret) and any(power.calibrated for power in of_secret)


def powers(reports: Mapping[str, Sequence[NullReport]], rng: Rng) -> list[Power]:
    """By secret, of attacks whose planted leak reaches the resolution: the strongest positive control first, until one is
    calibrated or `_TRIED` are not. Secrets of which there is none are left out.

    Args:
        reports: A/A reports by scope.
        rng: Of the planted leaks.
    """
    powers_of_all = []
    for _, attacks in sorted(_by_secret(reports).items()):
        tried: list[Power] = []
        for key, scope in attacks:
            evaluation = reports[scope][0].evaluations[key]
            if len(tried) < _TRIED and not any(power.calibrated for power in tried):
                pool = _Pool.of(evaluation, rng)
                if (weight_and_lead := _weight(evaluation, pool, rng)) is not None:
                    with_attack = [report for report in reports[scope] if key in report.evaluations]
                    tried.append(_power(key, evaluation, weight_and_lead, pool, with_attack, rng))
        powers_of_all += tried
    return powers_of_all


def _by_secret(reports: Mapping[str, Sequence[NullReport]]) -> dict[str, list[tuple[str, str]]]:
    """The attacks of each secret with a scope that they are tested in, the strongest positive control first."""
    by_secret: dict[str, list[tuple[float, str, str]]] = {}
    for scope, of_scope in reports.items():
        stored = {
            key: evaluation.stored.model_copy(update={"scopes": (scope,)})
            for key, evaluation in of_scope[0].evaluations.items()
        }
        for key, tests in attack_tests(stored, 0, sharp=False).items():
            attack, positive = stored[key], stored[key].undefended
            if positive is None or tests.positive is None:
                continue
            evidence = Evidence(tests.positive, attack.relevant_effect(positive), tests.positive)
            if evidence.works:
                by_secret.setdefault(attack.secret, []).append((-evidence.strength, key, scope))
    return {secret: [(key, scope) for _, key, scope in sorted(attacks)] for secret, attacks in by_secret.items()}


@dataclass(frozen=True, eq=False)
class _Draw:
    """Scores (u,) of resampled targets without and with a leak, a uniform draw for each, and the targets' indices."""

    null: ByName
    leaking: ByName
    draws: Array
    chosen: NDArray[np.int64]

    def at(self, evaluation: Evaluation, weight: float) -> AttackScores:
        """The evaluation of these targets, with a leak of this weight."""
        units = [f"{evaluation.on_wire.units[i]} {n}" for n, i in enumerate(self.chosen)]
        return evaluation.copy(mixed(self.null, self.leaking, self.draws, weight), units)


@dataclass(frozen=True, eq=False)
class _Pool:
    """Scores (n, u) of n permutations, with and without a leak, which each target of a report is drawn from by itself: of a
    target that is drawn twice, what is random in its scores is drawn twice too.
    """

    null: ByName
    leaking: ByName

    @classmethod
    def of(cls, evaluation: Evaluation, rng: Rng) -> "_Pool":
        null = [evaluation.null(permuted(evaluation.stored.domains, evaluation.scope, rng), rng) for _ in range(_TRUE)]
        leaking = [evaluation.leaking(rng) for _ in range(_TRUE)]
        return cls(*({name: np.stack([row[name] for row in rows]) for name in rows[0]} for rows in (null, leaking)))

    def drawn(self, rng: Rng) -> _Draw:
        n, u = self.null["attack"].shape
        chosen, rows = rng.integers(0, u, size=(u,)), rng.integers(0, n, size=(u,))
        null, leaking = (
            {name: values[rows, chosen] for name, values in scores.items()} for scores in (self.null, self.leaking)
        )
        return _Draw(null, leaking, rng.random((u,)), chosen)

    def leads(self, evaluation: Evaluation, weight: float) -> Array:
        """(B,): the true lead over each control where every target leaks with this probability, 0 or 1."""
        return evaluation.leads(mixed(self.null, self.leaking, np.full(self.null["attack"].shape, 0.5), weight))


def _weight(evaluation: Evaluation, pool: _Pool, rng: Rng) -> tuple[float, float] | None:
    """The weight at which the true lead equals the mean printed resolution, and that lead; None where none reaches it."""
    weights = np.linspace(0, 1, 1001)
    without, full = pool.leads(evaluation, 0.0), pool.leads(evaluation, 1.0)
    leads = (np.outer(1 - weights, without) + np.outer(weights, full)).min(1)
    few = [pool.drawn(rng) for _ in range(_OF_HITS if evaluation.hits else _RESOLUTIONS)]
    weight = 0.5
    for _ in range(_STEPS):
        printed = _resolution(evaluation, few, weight)
        reached = leads >= printed
        weight = float(weights[reached.argmax()]) if reached.any() else 1.0
    return (weight, printed) if reached.any() else None


def _resolution(evaluation: Evaluation, draws: Sequence[_Draw], weight: float) -> float:
    """The mean resolution that reports with this leak print."""
    copies = {str(i): draw.at(evaluation, weight) for i, draw in enumerate(draws)}
    evidence = [tests.scopes[evaluation.scope] for tests in attack_tests(copies, 0, resamples=2000).values()]
    printed = [e.test.resolution for e in evidence if isinstance(e, Evidence) and e.test.resolution is not None]
    return float(np.mean(printed)) if printed else np.inf


def _power(
    key: str,
    evaluation: Evaluation,
    weight_and_lead: tuple[float, float],
    pool: _Pool,
    reports: Sequence[NullReport],
    rng: Rng,
) -> Power:
    weight, lead = weight_and_lead
    weights = (0.0, weight / 2, weight, (1 + weight) / 2, 1.0) if weight < 1 else (0.0, weight / 2, weight)
    hits, leaks = np.zeros(len(weights)), np.zeros(len(weights))
    for report in reports:
        draw = pool.drawn(rng)
        for i, w in enumerate(weights):
            p, leak = report.outcome(key, draw.at(evaluation, w))
            hits[i] += p <= LEVEL
            leaks[i] += leak
    rates = (tuple((counts / len(reports)).tolist()) for counts in (hits, leaks))
    return Power(
        evaluation.stored.secret, evaluation.stored.attack, key, evaluation.scope, weight, lead, weights, *rates
    )
