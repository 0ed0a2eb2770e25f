"""Arms of a comparison, each a method under a defense with all its runs, and how their questions were answered."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.run import Run
from fdgpriv.results.tally import Tally
from fdgpriv.statistics.grades import GRADES, Grade, counted

from ._numbers import pooled
from ._words import defense


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
        tally: The number of questions by verdict.
        accuracy: Mean accuracy on the unseen domain; None if not measured.
    """

    arm: Arm
    tally: Tally
    accuracy: float | None

    @property
    def leaks_in_words(self) -> str:
        """The leaks of each grade with their noun, ``3 severe leaks, 2 traces``."""
        grades = self.tally.grades
        words = [counted(grade, n) for grade, n in grades]
        noun = "" if not grades or grades[0][0] == "trace" else " leak" if grades[0][1] == 1 else " leaks"
        return ", ".join([words[0] + noun, *words[1:]]) if words else "no leak shown"

    @property
    def weight(self) -> tuple[int, ...]:
        """The number of leaks of each grade, the highest first, to compare arms by."""
        by_grade = dict(self.tally.grades)
        return tuple(by_grade.get(grade, 0) for grade in reversed(GRADES))

    @property
    def grade(self) -> Grade | None:
        """The highest grade of its leaks; None without one."""
        return self.tally.grades[0][0] if self.tally.grades else None

    @property
    def proves(self) -> bool:
        """Whether an epsilon is proved."""
        return any(run.privacy.epsilon_proved is not None for run in self.arm.runs)

    @property
    def verdict(self) -> str:
        """The verdict that colours the arm; not_attacked without questions."""
        if self.tally.leaks:
            return "leak"
        if self.tally.inconclusive:
            return "inconclusive"
        if self.tally.no_leak_found:
            return "no_leak_found"
        return "sent_in_clear" if self.tally.sent_in_clear else "not_attacked"


def arm_answers(runs: Sequence[Run]) -> tuple[ArmAnswers, ...]:
    """The answers of each arm; a question that several seeds answer counts by the worst of them."""
    answers = []
    for arm in arms(runs):
        accuracy = pooled([run.utility.target_accuracy if run.utility else None for run in arm.runs])
        answers.append(ArmAnswers(arm, Tally.over(arm.runs), accuracy.value if accuracy else None))
    return tuple(answers)
