"""The printed summary of a comparison: a table for each later audit, and the number of corrected tests."""

from collections.abc import Iterator, Sequence

from fdgpriv.results.change import AttackChange, BytesChange, Change, EpsilonChange, QuestionChange
from fdgpriv.results.comparison import Comparison, LaterAudit, RunChange
from fdgpriv.statistics.measured import Measured

OUTCOMES = {"worse": "worse", "better": "better", "not_shown": "no change shown", "not_tested": "not tested"}
HEADINGS = ("", "before", "after", "", "difference [95 %]")

SummaryRow = tuple[str, str, str, str, str]


def summary(comparison: Comparison) -> str:
    """The tables; questions with the same verdict and no difference are only counted."""
    several = len(comparison.later) > 1
    lines = [later.warning + f" ({later.folder})" * several for later in comparison.later if later.warning]
    lines.append(f"baseline: {comparison.baseline}")
    for later in comparison.later:
        lines += _audit_lines(later)
    return "\n".join([*lines, _counts(comparison)])


def _audit_lines(later: LaterAudit) -> Iterator[str]:
    pairs = f"{len(later.runs)} pair{'' if len(later.runs) == 1 else 's'} of runs"
    yield f"against: {later.folder}, {pairs} of the same {', '.join(later.matched_by)}"
    differs = list(dict.fromkeys([*later.differs, *(difference for run in later.runs for difference in run.differs)]))
    yield from (f"  differs: {difference}" for difference in differs if difference not in later.not_comparable)
    yield from (f"  only in the baseline: {title}" for title in later.only_before)
    yield from (f"  only in {later.folder}: {title}" for title in later.only_after)
    yield from _table([HEADINGS, *_rows(later)])
    for name, changes in (
        ("accuracies", later.accuracies),
        ("attacks", [a for run in later.runs for a in run.attacks]),
    ):
        yield from (f"  {name}: {basis}" for basis in dict.fromkeys(entry.change.basis for entry in changes))
    changed = [run.changed(question) for run in later.runs for question in run.questions]
    yield f"  {changed.count(False)} of {len(changed)} questions: the same verdict, and no change shown"


def _rows(later: LaterAudit) -> Iterator[SummaryRow]:
    several = len(later.runs) > 1
    for accuracy in later.accuracies:
        arm = f" ({accuracy.after})" if len(later.accuracies) > 2 else ""
        yield (f"{accuracy.images} accuracy{arm}", *_figures(accuracy.change))
    for run in later.runs:
        rows = [
            *([("training", "done", run.lost, "" if later.warning else "worse", "")] if run.lost else []),
            *(_question(run, question, not later.warning) for question in run.questions if run.changed(question)),
        ]
        if several and rows:
            yield (f"{run.after}:", "", "", "", "")
        yield from rows
    yield from (_bytes(runs, change) for runs, change in later.sent())
    yield from (_epsilon(runs, change) for runs, change in later.epsilon())


def _question(run: RunChange, change: QuestionChange, comparable: bool) -> SummaryRow:
    q, attack = change.question, run.shown(change)
    before, after = (side.verdict.replace("_", " ") if side else "not asked" for side in (change.before, change.after))
    outcome = OUTCOMES[attack.change.outcome] if attack else ""
    outcome = "worse: moved to leak" if change.moved_to_leak and comparable else outcome
    return f"{q.artifact} {q.adversary} {q.secret} {q.scope}", before, after, outcome, _attack(attack) if attack else ""


def _attack(attack: AttackChange) -> str:
    change = attack.change
    return f"{attack.attack}: {attack.metric} {_number(change.before)} → {_number(change.after)}, {_difference(change)}"


def _figures(change: Change) -> tuple[str, str, str, str]:
    return _number(change.before), _number(change.after), OUTCOMES[change.outcome], _difference(change)


def _bytes(runs: str, change: BytesChange) -> SummaryRow:
    name = f"bytes of {change.kind}, {change.sender} → {change.to}{_bracketed(runs)}"
    times = f"{_count(change.times_before)} → {_count(change.times_after)} crossings"
    return name, _count(change.bytes_before), _count(change.bytes_after), "", times


def _epsilon(runs: str, change: EpsilonChange) -> SummaryRow:
    before, after = ("none" if value is None else f"{value:.3g}" for value in (change.before, change.after))
    name = change.name if change.name == "delta" else f"epsilon {change.name.replace('_', '-')}"
    about = dict.fromkeys(filter(None, (change.about_before, change.about_after)))
    return f"{name}{_bracketed(runs)}", before, after, "", "; then ".join(about)


def _bracketed(runs: str) -> str:
    return f" ({runs})" if runs else ""


def _table(rows: Sequence[SummaryRow]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()


def _counts(comparison: Comparison) -> str:
    if all(later.warning for later in comparison.later):
        return "no tests: nothing is worse or better between audits that are not comparable"
    moved = sum(later.moved_to_leak() for later in comparison.later)
    return (
        f"{comparison.tests} tests, corrected together by Holm: {comparison.count('worse')} worse, "
        f"{comparison.count('better')} better; verdicts that moved to leak: {moved}"
    )


def _difference(change: Change) -> str:
    difference = change.difference
    if difference.value is None:
        return f"not available: {difference.reason}"
    ends = f" [{difference.ci95[0]:+.3f}, {difference.ci95[1]:+.3f}]" if difference.ci95 else ""
    return f"{difference.value:+.3f}{ends}"


def _number(figure: Measured) -> str:
    return "–" if figure.value is None else f"{figure.value:.3f}"


def _count(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
