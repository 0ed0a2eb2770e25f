"""From the scores of a report to its findings: every test once, every question answered, every attack's entry."""

from collections.abc import Mapping
from dataclasses import dataclass

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.utils.failures import attempt
from fdgpriv.verdicts.attack_findings import finding
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.attack_tests import SCOPES, attack_tests
from fdgpriv.verdicts.questions import Questions


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
        key: finding(attack, tests[key], [scope for scope in SCOPES if questions.marked(key, scope)])
        for key, attack in scores.items()
    }
    return Verdicts(findings, questions)


def judge_all(scores: Mapping[str, AttackScores], seed: int) -> Verdicts:
    """The same as `judge`, but an attack whose scores cannot be tested counts as failed and does not stop the others."""
    verdicts = attempt(lambda: judge(scores, seed))
    if isinstance(verdicts, Verdicts):
        return verdicts
    return judge({key: _testable(attack, seed) for key, attack in scores.items()}, seed)


def _testable(attack: AttackScores, seed: int) -> AttackScores:
    """This attack; without scores and marked as failed if they cannot be tested."""
    verdicts = attempt(lambda: judge({"": attack}, seed))
    if isinstance(verdicts, Verdicts):
        return attack
    reason = f"failed: its scores cannot be tested: {verdicts.line}"
    no_scores: dict[str, object] = {"conditions": {}, "planted": {}, "figures": ()}
    return attack.model_copy(update={**no_scores, "not_applicable": reason, "failed": True})
