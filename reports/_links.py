"""Anchors on the page: cells of the matrix, the evidence on each question, and the figures of each attack."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.question import Question
from fdgpriv.results.run import Run

from ._arms import arms
from ._words import SECRETS, artifact_of, role_order, unique


@dataclass(frozen=True)
class Anchors:
    """Anchors by number, since names come from outside; `runs` are all runs of the report."""

    runs: Sequence[Run]

    def question(self, run: Run, question: Question) -> str:
        """The evidence on this question of this run."""
        return f"question-{_place(self.runs, run)}-{_place(run.questions, question)}"

    def attack(self, run: Run, attack: AttackFinding) -> str:
        """The figures of this attack of this run."""
        return f"attack-{_place(self.runs, run)}-{_place(run.attacks, attack)}"

    def cell(self, run: Run, adversary: str, artifact: str, secret: str) -> str:
        """The matrix cell of the run's method and defense for this question, in either scope."""
        questions = [question for run in self.runs for question in run.questions]
        roles = role_order(name for question in questions for name in question.adversaries)
        artifacts = unique(artifact_of(question) for question in questions)
        arm = next(i for i, arm in enumerate(arms(self.runs)) if any(run is of_arm for of_arm in arm.runs))
        place = (roles.index(adversary), artifacts.index(artifact), list(SECRETS).index(secret))
        return "cell-" + "-".join(str(number) for number in (arm, *place))


def _place(entries: Sequence[object], entry: object) -> int:
    """The position of this very object; equal ones may stand before it."""
    return next(i for i, other in enumerate(entries) if other is entry)
