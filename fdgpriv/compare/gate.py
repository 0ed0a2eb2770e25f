"""What --fail-on answers: whether the last audit leaks, and whether a later one is worse than the baseline."""

from collections.abc import Collection

from fdgpriv.compare.audits import Audit
from fdgpriv.results.comparison import Comparison, LaterAudit


def failures(conditions: Collection[str], comparison: Comparison, last: Audit) -> list[str]:
    """Why the comparison fails, one sentence for each of the conditions that is met."""
    said = []
    leaks = [asked for asked in last.results.questions() if asked.question.verdict == "leak"]
    if "leak" in conditions and leaks:
        one = leaks[0].question
        said.append(
            f"{len(leaks)} of {len(last.results.questions())} questions leak in {last.name}, first {one.secret} from "
            f"{one.artifact} by {one.adversary}"
        )
    if "worse" in conditions:
        said += [_worse(later) for later in comparison.later if later.worse]
    return said


def _worse(later: LaterAudit) -> str:
    counts = {
        "figures worse after correction": sum(change.outcome == "worse" for change in later.changes()),
        "verdicts that moved to leak": later.moved_to_leak(),
        "trainings that failed or diverged": sum(run.lost is not None for run in later.runs),
    }
    return f"{later.folder} is worse: {', '.join(f'{name}: {n}' for name, n in counts.items() if n)}"
