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
from fdgpriv.verdicts.questions import QuestionKey, Questions

ALARMS = 0.08  # largest share of A/A reports with a leak
_PER_QUESTION = 400  # resamples
_MIN_RESAMPLES = 2000


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
        order = permuted(first.stored.domains, first.scope, rng)
        scores = {key: evaluation.null(order, rng) for key, evaluation in evaluations.items()}
        scores = {key: by_role for key, by_role in scores.items() if evaluations[key].testable(by_role)}
        testable = {key: evaluations[key] for key in scores}
        copies = {key: evaluation.copy(scores[key]) for key, evaluation in testable.items()}
        return cls(testable, scores, attack_tests(copies, seed, resamples=resamples(copies), sharp=False), seed)

    def leaks(self, changed: Mapping[str, AttackScores] | None = None) -> dict[QuestionKey, bool]:
        """By question, whether the report calls a leak; with these attacks' scores in place of the drawn ones."""
        return {
            question: answer.verdict == "leak" for question, answer in self._answered(changed or {}).answers.items()
        }

    def outcome(self, key: str, changed: AttackScores) -> tuple[float, bool]:
        """With these scores of one attack in place of the drawn ones, its p, and whether its question is a leak."""
        questions = self._answered({key: changed})
        evidence = questions.tests[key].scopes[self.evaluations[key].scope]
        leaks = {
            questions.answers[question].verdict == "leak"
            for question, asked in questions.asked.items()
            if key in asked.attacks
        }
        return (1.0 if isinstance(evidence, Absent) or evidence.p is None else evidence.p), any(leaks)

    def _answered(self, changed: Mapping[str, AttackScores]) -> Questions:
        copies = {
            key: changed.get(key) or evaluation.copy(self.scores[key]) for key, evaluation in self.evaluations.items()
        }
        tests = attack_tests(changed, self.seed, resamples=resamples(copies), sharp=False)
        return Questions.of(copies, {**self.tests, **tests})

    def members(self) -> Mapping[QuestionKey, Sequence[str]]:
        """By question, the keys of the attacks that ask it."""
        return {question: asked.attacks for question, asked in self._answered({}).asked.items()}


def resamples(copies: Mapping[str, AttackScores]) -> int:
    """Enough for a family of these attacks' questions."""
    questions = {(attack.kind, attack.level, attack.threat.role, attack.secret) for attack in copies.values()}
    return max(_MIN_RESAMPLES, _PER_QUESTION * len(questions))


@dataclass(frozen=True)
class FalseLeaks:
    """The outcome for one scope.

    Attributes:
        scope: client or domain.
        reports: Number of A/A reports.
        questions: Number of questions in each.
        alarms: Reports that call any leak.
        leaks_found: Mean number of leaks found where `planted` questions leak.
        false_share: The mean share of the called leaks that are false, there.
    """

    scope: str
    reports: int
    questions: int
    alarms: int
    planted: int
    leaks_found: float
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
    return {key: Evaluation(attack, scope) for key, attack in report.items() if scope in attack.scopes}


def false_leaks(reports: Sequence[NullReport], rng: Rng) -> FalseLeaks:
    """Of these A/A reports of one scope, as they are and with half of the questions leaking."""
    alarms, n_found, shares, planted = 0, 0, [], 0
    leaky: dict[int, set[str]] = {}
    for report in reports:
        alarms += any(report.leaks().values())
        source = id(next(iter(report.evaluations.values())))
        if source not in leaky:
            leaky[source] = _with_leaking_positive_control(report)
        true, changed = _half_leaking(report, leaky[source], rng)
        called = [question for question, leak in report.leaks(changed).items() if leak]
        false = sum(question not in true for question in called)
        shares.append(false / max(1, len(called)))
        n_found, planted = n_found + len(called) - false, planted + len(true)
    n = len(reports)
    first = reports[0]
    return FalseLeaks(
        next(iter(first.evaluations.values())).scope,
        n,
        len(first.members()),
        alarms,
        round(planted / n),
        n_found / n,
        float(np.mean(shares)),
    )


def _with_leaking_positive_control(report: NullReport) -> set[str]:
    """The keys of the attacks whose positive control leaks."""
    stored = {
        key: evaluation.stored.model_copy(update={"scopes": (evaluation.scope,)})
        for key, evaluation in report.evaluations.items()
    }
    positives = {key: tests.positive for key, tests in attack_tests(stored, 0, sharp=False).items()}
    return {key for key, test in positives.items() if test is not None and test.p is not None and test.p <= LEVEL}


def _half_leaking(report: NullReport, leaky: set[str], rng: Rng) -> tuple[set[QuestionKey], dict[str, AttackScores]]:
    """Half of the questions, drawn from those whose attacks' positive controls leak; and such attacks' scores of these."""
    members = report.members()
    candidates = [question for question, keys in members.items() if leaky & set(keys)]
    leaking = [candidates[i] for i in rng.permutation(len(candidates))[: len(members) // 2]]
    changed = {}
    for key in (key for question in leaking for key in members[question] if key in leaky):
        evaluation, null = report.evaluations[key], report.scores[key]
        no_draws = np.zeros(len(evaluation.on_wire.units))
        changed[key] = evaluation.copy(mixed(null, evaluation.leaking(rng), no_draws, 1.0))
    return set(leaking), changed
