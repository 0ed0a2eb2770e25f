"""How often A/A reports call a leak, and which share of the called leaks is false where half of the questions leak."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fdgpriv.selftest.null_reports import ByName, Evaluation, Rng, mixed, permuted
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import FALSE_DISCOVERIES, Absent
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.attack_tests import SCOPES as SCOPES
from fdgpriv.verdicts.attack_tests import AttackTests, attack_tests
from fdgpriv.verdicts.questions import Key, Questions

ALARMS = 0.08  # largest share of A/A reports with a leak
_PER_QUESTION = 400  # resamples
_LEAST = 2000


@dataclass(frozen=True, eq=False)
class NullReport:
    """One A/A report: the questions of one scope, tested.

    Attributes:
        evaluations: By key, as stored.
        scores: By key, drawn.
        tests: By key, of the drawn scores.
        seed: Of the resampling.
    """

    evaluations: Mapping[str, Evaluation]
    scores: Mapping[str, ByName]
    tests: Mapping[str, AttackTests]
    seed: int

    @classmethod
    def drawn(cls, evaluations: Mapping[str, Evaluation], rng: Rng) -> "NullReport":
        """With one permutation for all attacks."""
        seed = int(rng.integers(2**31))
        first = next(iter(evaluations.values()))
        order = permuted(first.one.domains, first.scope, rng)
        scores = {key: one.null(order, rng) for key, one in evaluations.items()}
        scores = {key: some for key, some in scores.items() if evaluations[key].testable(some)}
        kept = {key: evaluations[key] for key in scores}
        copies = {key: one.copy(scores[key]) for key, one in kept.items()}
        return cls(kept, scores, attack_tests(copies, seed, resamples=resamples(copies), sharp=False), seed)

    def leaks(self, changed: Mapping[str, AttackScores] | None = None) -> dict[Key, bool]:
        """By question, whether the report calls a leak; with these attacks' scores in place of the drawn ones."""
        return {
            question: answer.verdict == "leak" for question, answer in self._answered(changed or {}).answers.items()
        }

    def outcome(self, key: str, changed: AttackScores) -> tuple[float, bool]:
        """With these scores of one attack in place of the drawn ones, its p, and whether its question is a leak."""
        questions = self._answered({key: changed})
        evidence = questions.tests[key].scopes[self.evaluations[key].scope]
        leaks = {
            questions.answers[one].verdict == "leak" for one, asked in questions.asked.items() if key in asked.attacks
        }
        return (1.0 if isinstance(evidence, Absent) or evidence.p is None else evidence.p), any(leaks)

    def _answered(self, changed: Mapping[str, AttackScores]) -> Questions:
        copies = {key: changed.get(key) or one.copy(self.scores[key]) for key, one in self.evaluations.items()}
        tests = attack_tests(changed, self.seed, resamples=resamples(copies), sharp=False)
        return Questions.of(copies, {**self.tests, **tests})

    def members(self) -> Mapping[Key, Sequence[str]]:
        """By question, the keys of the attacks that ask it."""
        return {question: asked.attacks for question, asked in self._answered({}).asked.items()}


def resamples(copies: Mapping[str, AttackScores]) -> int:
    """Enough for a family of these attacks' questions."""
    return max(
        _LEAST, _PER_QUESTION * len({(one.kind, one.level, one.threat.role, one.secret) for one in copies.values()})
    )


@dataclass(frozen=True)
class FalseLeaks:
    """The outcome for one scope.

    Attributes:
        scope: client or domain.
        reports: Number of A/A reports.
        questions: Number of questions in each.
        alarms: Reports that call any leak.
        found: Mean number of leaks found where `planted` questions leak.
        false_share: The mean share of the called leaks that are false, there.
    """

    scope: str
    reports: int
    questions: int
    alarms: int
    planted: int
    found: float
    false_share: float

    @property
    def allowed(self) -> int:
        """The most reports that may call a leak."""
        return int(ALARMS * self.reports)

    @property
    def passed(self) -> bool:
        """Whether both rates are kept."""
        return self.alarms <= self.allowed and self.false_share <= FALSE_DISCOVERIES


def evaluations(report: Mapping[str, AttackScores], scope: str) -> dict[str, Evaluation]:
    """The attacks of this report that are asked in this scope."""
    return {key: Evaluation(one, scope) for key, one in report.items() if scope in one.scopes}


def false_leaks(reports: Sequence[NullReport], rng: Rng) -> FalseLeaks:
    """Of these A/A reports of one scope, as they are and with half of the questions leaking."""
    alarms, found, shares, planted = 0, 0, [], 0
    leaky: dict[int, set[str]] = {}
    for report in reports:
        alarms += any(report.leaks().values())
        known = id(next(iter(report.evaluations.values())))
        if known not in leaky:
            leaky[known] = _succeed(report)
        true, changed = _half_leaking(report, leaky[known], rng)
        called = [question for question, leak in report.leaks(changed).items() if leak]
        false = sum(question not in true for question in called)
        shares.append(false / max(1, len(called)))
        found, planted = found + len(called) - false, planted + len(true)
    n = len(reports)
    first = reports[0]
    return FalseLeaks(
        next(iter(first.evaluations.values())).scope,
        n,
        len(first.members()),
        alarms,
        round(planted / n),
        found / n,
        float(np.mean(shares)),
    )


def _succeed(report: NullReport) -> set[str]:
    """The keys of the attacks whose positive control leaks."""
    stored = {key: one.one.model_copy(update={"scopes": (one.scope,)}) for key, one in report.evaluations.items()}
    found = {key: one.positive for key, one in attack_tests(stored, 0, sharp=False).items()}
    return {key for key, one in found.items() if one is not None and one.p is not None and one.p <= LEVEL}


def _half_leaking(report: NullReport, leaky: set[str], rng: Rng) -> tuple[set[Key], dict[str, AttackScores]]:
    """Half of the questions, drawn from those whose attacks' positive controls leak; and such attacks' scores of these."""
    members = report.members()
    able = [question for question, keys in members.items() if leaky & set(keys)]
    some = [able[i] for i in rng.permutation(len(able))[: len(members) // 2]]
    changed = {}
    for key in (key for question in some for key in members[question] if key in leaky):
        one, null = report.evaluations[key], report.scores[key]
        changed[key] = one.copy(mixed(null, one.leaking(rng), np.zeros(len(one.whole.units)), 1.0))
    return set(some), changed
