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
    figures = sum(change.outcome == "worse" for change in later.changes())
    return (
        f"{later.folder} is worse: {figures} figures after correction, {later.moved_to_leak()} verdicts moved to leak"
    )
