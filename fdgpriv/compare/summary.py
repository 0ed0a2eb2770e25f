"""What the comparison prints: one table for each later audit, and how many tests were corrected together."""

from collections.abc import Iterator, Sequence

from fdgpriv.results.change import AttackChange, BytesChange, Change, EpsilonChange, QuestionChange
from fdgpriv.results.comparison import Comparison, LaterAudit, RunChange
from fdgpriv.statistics.measured import Measured

OUTCOMES = {"worse": "worse", "better": "better", "not_shown": "no change shown", "not_tested": "not tested"}
HEADS = ("", "before", "after", "", "difference [95 %]")

Row = tuple[str, str, str, str, str]


def summary(comparison: Comparison) -> str:
    """The tables; questions with the same verdict and no difference are only counted."""
    lines = [f"baseline: {comparison.baseline}"]
    for later in comparison.later:
        lines += _later(later)
    return "\n".join([*lines, _counts(comparison)])


def _later(later: LaterAudit) -> Iterator[str]:
    pairs = f"{len(later.runs)} pair{'' if len(later.runs) == 1 else 's'} of runs"
    yield f"against: {later.folder}, {pairs} of the same {', '.join(later.matched_by)}"
    differs = list(dict.fromkeys([*later.differs, *(said for run in later.runs for said in run.differs)]))
    yield from (f"  differs: {said}" for said in differs)
    yield from (f"  only in the baseline: {title}" for title in later.only_before)
    yield from (f"  only in {later.folder}: {title}" for title in later.only_after)
    yield from _table([HEADS, *_rows(later)])
    for name, changes in (
        ("accuracies", later.accuracies),
        ("attacks", [a for run in later.runs for a in run.attacks]),
    ):
        yield from (f"  {name}: {basis}" for basis in dict.fromkeys(one.change.basis for one in changes))
    asked = [question for run in later.runs for question in run.questions]
    same = len(asked) - sum(run.changed(question) for run in later.runs for question in run.questions)
    yield f"  {same} of {len(asked)} questions: the same verdict, and no change shown"


def _rows(later: LaterAudit) -> Iterator[Row]:
    several = len(later.runs) > 1
    for one in later.accuracies:
        which = f" ({one.after})" if len(later.accuracies) > 2 else ""
        yield (f"{one.images} accuracy{which}", *_figures(one.change))
    for run in later.runs:
        rows = [
            *([("training", "done", run.lost, "worse", "")] if run.lost else []),
            *(_question(run, question) for question in run.questions if run.changed(question)),
        ]
        if several and rows:
            yield (f"{run.after}:", "", "", "", "")
        yield from rows
    yield from (_bytes(*found) for found in later.sent())
    yield from (_epsilon(*found) for found in later.epsilon())


def _question(run: RunChange, question: QuestionChange) -> Row:
    one, shown = question.question, run.shown(question)
    verdicts = [side.verdict.replace("_", " ") if side else "not asked" for side in (question.before, question.after)]
    outcome = OUTCOMES[shown.change.outcome] if shown else ""
    said = "worse: moved to leak" if question.moved_to_leak else outcome
    name = f"{one.artifact} {one.adversary} {one.secret} {one.scope}"
    return name, verdicts[0], verdicts[1], said, _attack(shown) if shown else ""


def _attack(one: AttackChange) -> str:
    change = one.change
    return f"{one.attack}: {one.metric} {_number(change.before)} → {_number(change.after)}, {_difference(change)}"


def _figures(change: Change) -> tuple[str, str, str, str]:
    return _number(change.before), _number(change.after), OUTCOMES[change.outcome], _difference(change)


def _bytes(runs: str, one: BytesChange) -> Row:
    name = f"bytes of {one.kind}, {one.sender} → {one.to}{_in(runs)}"
    times = f"{_count(one.times_before)} → {_count(one.times_after)} crossings"
    return name, _count(one.bytes_before), _count(one.bytes_after), "", times


def _epsilon(runs: str, one: EpsilonChange) -> Row:
    before, after = ("none" if value is None else f"{value:.3g}" for value in (one.before, one.after))
    name = one.name if one.name == "delta" else f"epsilon {one.name.replace('_', '-')}"
    return f"{name}{_in(runs)}", before, after, "", ""


def _in(runs: str) -> str:
    return f" ({runs})" if runs else ""


def _table(rows: Sequence[Row]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()


def _counts(comparison: Comparison) -> str:
    moved = sum(later.moved_to_leak() for later in comparison.later)
    return (
        f"{comparison.tests} tests, corrected together by Holm: {comparison.count('worse')} worse, "
        f"{comparison.count('better')} better; verdicts that moved to leak: {moved}"
    )


def _difference(change: Change) -> str:
    gap = change.difference
    if gap.value is None:
        return f"not available: {gap.reason}"
    return f"{gap.value:+.3f}" + (f" [{gap.ci95[0]:+.3f}, {gap.ci95[1]:+.3f}]" if gap.ci95 else "")


def _number(figure: Measured) -> str:
    return "–" if figure.value is None else f"{figure.value:.3f}"


def _count(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
