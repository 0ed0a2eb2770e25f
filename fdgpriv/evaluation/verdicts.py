"""From the scores of a report to its findings: every test once, every question answered, every attack's entry."""

from collections.abc import Mapping
from dataclasses import dataclass

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_tests import SCOPES, attack_tests
from fdgpriv.evaluation.questions import Questions
from fdgpriv.evaluation.row_findings import finding
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.utils.failures import attempt

_NO_SCORES = {
    name: AttackScores.model_fields[name].get_default(call_default_factory=True)
    for name in ("by_size", "ablations", "by_rounds", "undefended", "unaware", "planted", "figures", "tables")
}


@dataclass(frozen=True)
class Verdicts:
    """The findings of all attacks of a report by key, and its questions."""

    findings: Mapping[str, AttackFinding]
    questions: Questions


def judge(scores: Mapping[str, AttackScores], seed: int) -> Verdicts:
    """Tests and answers everything in a report; `seed` is of the resampling, keys are ``CELL/EVALUATION``."""
    tests = attack_tests(scores, seed)
    questions = Questions.of(scores, tests)
    findings = {
        key: finding(one, tests[key], [scope for scope in SCOPES if questions.marked(key, scope)])
        for key, one in scores.items()
    }
    return Verdicts(findings, questions)


def judge_all(scores: Mapping[str, AttackScores], seed: int) -> Verdicts:
    """`judge` where scores that cannot be tested, each by itself, count as a failed attack."""
    found = attempt(lambda: judge(scores, seed))
    if isinstance(found, Verdicts):
        return found
    return judge({key: _testable(one, seed) for key, one in scores.items()}, seed)


def _testable(one: AttackScores, seed: int) -> AttackScores:
    alone = attempt(lambda: judge({"": one}, seed))
    if isinstance(alone, Verdicts):
        return one
    reason = f"failed: its scores cannot be tested: {alone.line}"
    return one.model_copy(update={**_NO_SCORES, "not_applicable": reason, "failed": True})
