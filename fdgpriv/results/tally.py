"""Counts the questions of an audit by verdict: the one count that every report, table and summary shows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import GRADES, Grade, counted, highest
from fdgpriv.statistics.questions import Verdict

NOT_TESTED = ("sent_in_clear", "not_applicable")


@dataclass(frozen=True)
class Tally:
    """How many questions were answered how; an artifact that is the secret, or cannot be attacked, is no question.

    Attributes:
        leaks, no_leak_found, inconclusive: Numbers of questions by verdict.
        grades: Numbers of leaks by grade, the highest grade first; grades without a leak are left out.
        sent_in_clear, not_applicable: Numbers of those that were not tested, which are not among the questions.
    """

    leaks: int = 0
    no_leak_found: int = 0
    inconclusive: int = 0
    grades: tuple[tuple[Grade, int], ...] = ()
    sent_in_clear: int = 0
    not_applicable: int = 0

    @classmethod
    def of(cls, questions: Iterable[Question]) -> Self:
        """Of these questions, each counted once, for however many adversaries it is the same measurement."""
        return cls._of([(question.verdict, question.grade) for question in questions])

    @classmethod
    def over(cls, runs: Sequence[Run]) -> Self:
        """Over runs of several seeds: a question that several of them answer counts once, by the worst answer."""
        answers: dict[tuple[str, ...], tuple[Verdict, list[Grade]]] = {}
        for run in runs:
            for q in run.questions:
                key = (q.artifact, q.level, q.adversary, q.secret, q.scope, run.target or "")
                verdict, grades = answers.get(key, (q.verdict, []))
                worst = min(verdict, q.verdict, key=WORST_FIRST.index)
                answers[key] = worst, [*grades, *([q.grade] if q.grade else [])]
        return cls._of([(verdict, highest(grades) if grades else None) for verdict, grades in answers.values()])

    @classmethod
    def _of(cls, answers: Sequence[tuple[Verdict, Grade | None]]) -> Self:
        by_verdict = Counter[str](verdict for verdict, _ in answers)
        by_grade = Counter(grade for _, grade in answers if grade is not None)
        return cls(
            leaks=by_verdict["leak"],
            no_leak_found=by_verdict["no_leak_found"],
            inconclusive=by_verdict["inconclusive"],
            grades=tuple((grade, by_grade[grade]) for grade in reversed(GRADES) if by_grade[grade]),
            sent_in_clear=by_verdict["sent_in_clear"],
            not_applicable=by_verdict["not_applicable"],
        )

    @property
    def asked(self) -> int:
        """The number of questions that were put to the test."""
        return self.leaks + self.no_leak_found + self.inconclusive

    @property
    def leaks_by_grade(self) -> str:
        """The number of leaks of each grade, ``3 severe, 2 traces``; empty without leaks."""
        return ", ".join(counted(grade, n) for grade, n in self.grades)

    @property
    def in_words(self) -> str:
        """``3 questions: 1 leak (1 trace), 1 no leak found, 1 inconclusive; 1 sent in clear``."""
        leaks = f"{self.leaks} leak{'' if self.leaks == 1 else 's'}" + (
            f" ({self.leaks_by_grade})" if self.leaks else ""
        )
        verdicts = f"{leaks}, {self.no_leak_found} no leak found, {self.inconclusive} inconclusive"
        apart = {"sent in clear": self.sent_in_clear, "not applicable": self.not_applicable}
        questions = f"{self.asked} question{'' if self.asked == 1 else 's'}: {verdicts}"
        return "; ".join([questions, *(f"{n} {name}" for name, n in apart.items() if n)])


def shown(questions: Iterable[Question]) -> list[Question]:
    """The rows of every table of questions: those that were put to the test, and what was sent in clear."""
    return [question for question in questions if question.verdict != "not_applicable"]
