"""The conditions of --fail-on about leaks: any leak, or one of at least a grade by the point estimate."""

from typing import TYPE_CHECKING

from fdgpriv.results.tally import Tally
from fdgpriv.statistics.grades import GRADES

if TYPE_CHECKING:  # the command line knows the conditions before it reads results
    from fdgpriv.results.finding import Results

LEAK = "leak"
LEAK_CONDITIONS = (LEAK, *(f"{LEAK}:{grade}" for grade in GRADES))
WANTED = f"{LEAK} or {LEAK}:GRADE ({', '.join(GRADES)})"


def leak_sentence(condition: str, results: "Results", name: str) -> str | None:
    """What leaks if the condition is met, in one sentence; None if it is not.

    Args:
        condition: One of `LEAK_CONDITIONS`.
        results: Of the audit.
        name: Of the audit, for the sentence.
    """
    ranks: dict[str, int] = {grade: rank for rank, grade in enumerate(GRADES)}
    grade = condition.partition(":")[2] or GRADES[0]
    questions = [asked.question for asked in results.questions()]
    leaks = [q for q in questions if q.grade is not None and ranks[q.grade] >= ranks[grade]]
    if not leaks:
        return None
    worst = max(leaks, key=lambda question: ranks[question.grade or GRADES[0]])
    first = f"{worst.secret} from {worst.artifact} by {worst.adversary} ({worst.grade})"
    at_least = "" if condition == LEAK else f" with the grade {grade} or more"
    return f"{len(leaks)} of {Tally.of(questions).asked} questions leak{at_least} in {name}, first {first}"
