"""The conditions of --fail-on: the last audit leaks, or a later one is worse than the baseline or answers less."""

from collections.abc import Collection

from fdgpriv.compare.audits import Audit
from fdgpriv.results.comparison import Comparison, LaterAudit
from fdgpriv.results.leak_gate import LEAK_CONDITIONS, leak_sentence


def failures(conditions: Collection[str], comparison: Comparison, last: Audit) -> list[str]:
    """One sentence for each condition that is met; none rests on an audit that is not comparable with the baseline."""
    sentences = []
    if comparison.later[-1].not_comparable:
        conditions = [condition for condition in conditions if condition not in LEAK_CONDITIONS]
    for condition in LEAK_CONDITIONS:
        if condition in conditions and (sentence := leak_sentence(condition, last.results, last.name)) is not None:
            sentences.append(sentence)
    if "worse" in conditions:
        sentences += [_worse(later) for later in comparison.later if later.worse]
    return sentences


def missing(comparison: Comparison) -> list[str]:
    """One sentence for each later audit that lacks runs or answers of the baseline."""
    return [sentence for later in comparison.later if not later.not_comparable and (sentence := _missing(later))]


def not_gated(comparison: Comparison) -> list[str]:
    """One sentence for each later audit that --fail-on does not judge, since it is not comparable."""
    return [f"{later.folder} gates nothing: {later.warning}" for later in comparison.later if later.warning]


def _missing(later: LaterAudit) -> str | None:
    lost = [(run, question) for run in later.runs for question in run.questions if question.lost]
    phrases = [f"no run like {later.only_before[0]}{_more(len(later.only_before))}"] if later.only_before else []
    if lost:
        run, first = lost[0]
        q = first.question
        name = f"{q.secret} from {q.artifact} by {q.adversary} in the {q.scope} scope ({run.after})"
        phrases.append(f"{name}: {first.lost}{_more(len(lost))}")
    return f"{later.folder} does not answer all that the baseline asks: {'; '.join(phrases)}" if phrases else None


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _worse(later: LaterAudit) -> str:
    counts = {
        "figures worse after correction": sum(change.outcome == "worse" for change in later.changes()),
        "verdicts that moved to leak": later.moved_to_leak(),
        "trainings that failed or diverged": sum(run.lost is not None for run in later.runs),
    }
    return f"{later.folder} is worse: {', '.join(f'{name}: {n}' for name, n in counts.items() if n)}"
