"""Methods by secrets: the worst answer over adversaries, artifacts and runs of one setting, and accuracy beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fdgpriv.results.accuracy import Accuracy
from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question, worst_first
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import GRADES, Grade
from fdgpriv.statistics.measured import Measured


@dataclass(frozen=True)
class AuditedRun:
    """A run, the name of its audit on the command line, that audit's results, and their folder."""

    run: Run
    audit: str
    results: Results
    folder: Path


@dataclass(frozen=True)
class WorstAnswer:
    """The worst answer of a method's runs about one secret, over adversaries, artifacts, scopes and runs.

    Attributes:
        source: The run that gives it.
        question: The question with this answer.
        agreeing: Runs whose own worst answer has the same verdict and grade.
        asking: Runs that ask about this secret.
        leads: Of the same question, by the same metric, in each run that tested it.
    """

    source: AuditedRun
    question: Question
    agreeing: int
    asking: int
    leads: tuple[Measured, ...]

    @classmethod
    def of(cls, runs: Sequence[AuditedRun], secret: str) -> "WorstAnswer | None":
        """The worst answer about this secret; None if no run asks about it."""
        worst_of_runs = [
            (min(questions, key=worst_first), run)
            for run in runs
            if (questions := [question for question in run.run.questions if question.secret == secret])
        ]
        if not worst_of_runs:
            return None
        question, source = min(worst_of_runs, key=lambda pair: worst_first(pair[0]))
        outcome = (question.verdict, question.grade)
        return cls(
            source=source,
            question=question,
            agreeing=sum((other.verdict, other.grade) == outcome for other, _ in worst_of_runs),
            asking=len(worst_of_runs),
            leads=tuple(_leads(question, [run.run for run in runs])),
        )


def _leads(question: Question, runs: Sequence[Run]) -> list[Measured]:
    return [
        other.lead
        for run in runs
        for other in run.questions
        if _key(other) == _key(question) and other.lead is not None and other.lead.value is not None
    ]


def _key(question: Question) -> tuple[str | None, ...]:
    metric = question.strongest.metric if question.strongest else None
    return question.artifact, question.level, question.adversary, question.secret, question.scope, metric


@dataclass(frozen=True)
class LeaderboardRow:
    """One method under one defense: its runs, its worst answer by secret, and its accuracies.

    Attributes:
        accuracies: One for each kind of model that the method returns; empty where no run has a target domain.
    """

    method: str
    defense: str
    runs: tuple[AuditedRun, ...]
    answers: Mapping[str, WorstAnswer]
    accuracies: tuple[Accuracy, ...]

    @property
    def shares_nothing(self) -> bool:
        """Whether in none of its runs any artifact crossed the wire, so that no secret can be asked about."""
        return all(run.run.shares_nothing for run in self.runs)

    def rank(self, secrets: Sequence[str]) -> tuple[float, ...]:
        """Sorts the rows of a table with these secrets: fewest that are not asked about though something is shared, fewest
        with severe, moderate and trace leaks, fewest open, then the highest accuracy.
        """
        questions = [answer.question for answer in self.answers.values()]
        grades: list[Grade | None] = [question.grade for question in questions]
        counts = [float(grades.count(grade)) for grade in reversed(GRADES)]
        open_answers = float(sum(question.verdict == "inconclusive" for question in questions))
        targets = [accuracy.target.value for accuracy in self.accuracies if accuracy.target.value is not None]
        unasked = 0.0 if self.shares_nothing else float(len(secrets) - len(self.answers))
        return (unasked, *counts, open_answers, -max(targets, default=-1.0))


@dataclass(frozen=True)
class Standings:
    """The rows of one setting: runs of the same images, preset and clients.

    Attributes:
        setting: Names and values of what the runs have in common.
        notes: What differs between the audits besides the method.
        results: All runs of the table, for accuracies over trainings.
    """

    setting: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    secrets: tuple[str, ...]
    rows: tuple[LeaderboardRow, ...]
    results: Results


@dataclass(frozen=True)
class Leaderboard:
    """One table for each setting; `baseline` is the method that accuracies are compared with by pairs."""

    standings: tuple[Standings, ...]
    baseline: str
