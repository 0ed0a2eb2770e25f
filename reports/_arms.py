"""Arms of a comparison, each a method under a defense with all its runs, and how their questions were answered."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.question import WORST_FIRST
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import GRADES, Grade, counted, highest

from ._numbers import pooled
from ._words import artifact_of, defense


@dataclass(frozen=True)
class Arm:
    """One method under one defense, with its runs over targets and seeds."""

    name: str
    method: str
    defense: str
    runs: tuple[Run, ...]


def arms(runs: Sequence[Run]) -> tuple[Arm, ...]:
    """The runs by method and defense, in the order of the runs; named by what differs between arms."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.method, run.defense), []).append(run)
    defenses_differ = len({name for _, name in groups}) > 1
    methods_differ = len({method for method, _ in groups}) > 1

    def name(method: str, defense_name: str) -> str:
        if not defenses_differ:
            return method
        return f"{method}, {defense(defense_name)}" if methods_differ else defense(defense_name)

    return tuple(Arm(name(*key), *key, tuple(group)) for key, group in groups.items())


@dataclass(frozen=True)
class ArmAnswers:
    """How the questions of one arm were answered over all its runs.

    Attributes:
        arm: The arm.
        leaks, no_leak_found, inconclusive: Numbers of questions by verdict.
        accuracy: Mean accuracy on the unseen domain; None if not measured.
        grades: Number of leaks by grade, the highest grade first.
    """

    arm: Arm
    leaks: int
    no_leak_found: int
    inconclusive: int
    accuracy: float | None
    grades: tuple[tuple[Grade, int], ...] = ()

    @property
    def leaks_by_grade(self) -> str:
        """The number of leaks of each grade, ``3 severe, 2 traces``; empty without leaks."""
        return ", ".join(counted(grade, n) for grade, n in self.grades)

    @property
    def leaks_in_words(self) -> str:
        """The same with its noun, ``3 severe leaks, 2 traces``."""
        words = [counted(grade, n) for grade, n in self.grades]
        noun = (
            "" if not self.grades or self.grades[0][0] == "trace" else " leak" if self.grades[0][1] == 1 else " leaks"
        )
        return ", ".join([words[0] + noun, *words[1:]]) if words else "no leak shown"

    @property
    def weight(self) -> tuple[int, ...]:
        """The number of leaks of each grade, the highest first, to compare arms by."""
        by_grade = dict(self.grades)
        return tuple(by_grade.get(grade, 0) for grade in reversed(GRADES))

    @property
    def grade(self) -> Grade | None:
        """The highest grade of its leaks; None without one."""
        return self.grades[0][0] if self.grades else None

    @property
    def asked(self) -> int:
        """The number of questions that could be tested."""
        return self.leaks + self.no_leak_found + self.inconclusive

    @property
    def proves(self) -> bool:
        """Whether an epsilon is proved."""
        return any(run.privacy.epsilon_proved is not None for run in self.arm.runs)

    @property
    def verdict(self) -> str:
        """The verdict that colours the arm; not_attacked without questions."""
        if self.leaks:
            return "leak"
        return "inconclusive" if self.inconclusive else "no_leak_found" if self.no_leak_found else "not_attacked"


def arm_answers(runs: Sequence[Run]) -> tuple[ArmAnswers, ...]:
    """The answers of each arm; a question that several seeds answer counts by the worst of them."""
    answers = []
    for arm in arms(runs):
        verdicts: dict[tuple[str, ...], str] = {}
        grades: dict[tuple[str, ...], Grade] = {}
        for run in arm.runs:
            for q in run.questions:
                key = (artifact_of(q), q.adversary, q.secret, q.scope, run.target or "")
                verdicts[key] = min(verdicts.get(key, q.verdict), q.verdict, key=WORST_FIRST.index)
                if q.grade:
                    grades[key] = highest((grades.get(key, q.grade), q.grade))
        by_verdict, by_grade = Counter(verdicts.values()), Counter(grades.values())
        accuracy = pooled([run.utility.target_accuracy if run.utility else None for run in arm.runs])
        answers.append(
            ArmAnswers(
                arm=arm,
                leaks=by_verdict["leak"],
                no_leak_found=by_verdict["no_leak_found"],
                inconclusive=by_verdict["inconclusive"],
                accuracy=accuracy.value if accuracy else None,
                grades=tuple((grade, by_grade[grade]) for grade in reversed(GRADES) if by_grade[grade]),
            )
        )
    return tuple(answers)
