"""What --fail-on answers: whether the last audit leaks, and whether a later one is worse than the baseline or asks less."""

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


def missing(comparison: Comparison) -> list[str]:
    """One sentence for each later audit that leaves open what the baseline asks: runs without a partner, and questions."""
    return [sentence for later in comparison.later if (sentence := _missing(later))]


def _missing(later: LaterAudit) -> str | None:
    lost = [(run, question) for run in later.runs for question in run.questions if question.lost]
    told = [f"no run like {later.only_before[0]}{_more(len(later.only_before))}"] if later.only_before else []
    if lost:
        run, first = lost[0]
        one = first.question
        asked = f"{one.secret} from {one.artifact} by {one.adversary} in the {one.scope} scope ({run.after})"
        told.append(f"{asked}: {first.lost}{_more(len(lost))}")
    return f"{later.folder} does not answer all that the baseline asks: {'; '.join(told)}" if told else None


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _worse(later: LaterAudit) -> str:
    counts = {
        "figures worse after correction": sum(change.outcome == "worse" for change in later.changes()),
        "verdicts that moved to leak": later.moved_to_leak(),
        "trainings that failed or diverged": sum(run.lost is not None for run in later.runs),
    }
    return f"{later.folder} is worse: {', '.join(f'{name}: {n}' for name, n in counts.items() if n)}"
