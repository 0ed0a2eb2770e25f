"""What a comparison of audits tells: what became worse or better, and the tables behind it; each format sets it in type."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.change import ERROR, BytesChange, Change, EpsilonChange, QuestionChange
from fdgpriv.results.comparison import Comparison, LaterAudit, RunChange
from fdgpriv.results.question import Question

from ._numbers import measured, p_value, plain, rounded_bytes, share
from ._tables import Cell, Table, count, text, verdict
from ._tables import number as figure
from ._words import BOUNDS, IMAGES, OUTCOMES, SECRETS, artifact, asked_of, joined, metric, role, scope, spoken, upper


@dataclass(frozen=True)
class Against:
    """One later audit against the baseline; a table is None where it would be empty.

    Attributes:
        title: Its folder.
        facts: How its runs were matched, and what differs.
        accuracy: Always there.
        changed: The questions whose verdict moved or on which an attack's score changed, and those that one audit asks.
        unchanged: The other questions.
        sent, epsilon: What changed of the ledger and of epsilon.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    accuracy: Table
    changed: Table | None
    unchanged: Table | None
    sent: Table | None
    epsilon: Table | None


@dataclass(frozen=True)
class Changes:
    """Everything that a comparison shows, already in words; `word` is an outcome."""

    title: str
    word: str
    sentence: str
    note: str
    audits: tuple[Against, ...]


def changes(comparison: Comparison) -> Changes:
    """The comparison in words."""
    worse, better = comparison.count("worse"), comparison.count("better")
    moved = sum(later.moved_to_leak() for later in comparison.later)
    word = "worse" if any(later.worse for later in comparison.later) else "better" if better else "not_shown"
    note = (
        f"{_times(comparison.tests, 'test')}, corrected together by Holm: worse and better are what has p ≤ {ERROR} after "
        "the correction. No change shown is not evidence that nothing changed. Square brackets are 95% intervals, "
        "without correction."
    )
    return Changes(
        title=f"Against {comparison.baseline}",
        word=word,
        sentence=f"{_times(worse, 'figure')} worse, {better} better; {_times(moved, 'verdict')} moved to leak.",
        note=note,
        audits=tuple(map(_against, comparison.later)),
    )


def _against(later: LaterAudit) -> Against:
    asked = [(run, question) for run in later.runs for question in run.questions]
    several = len(later.runs) > 1
    differs = dict.fromkeys([*later.differs, *(said for run in later.runs for said in run.differs)])
    facts = (
        ("Runs compared", "; ".join(_pair(run) for run in later.runs)),
        ("Matched by", joined(list(later.matched_by))),
        ("What differs", "; ".join(differs) or "nothing that was asked"),
        ("Not paired", "; ".join(_not_paired(later))),
        ("Not trained any more", "; ".join(f"{run.after}: {run.lost}" for run in later.runs if run.lost)),
        ("Only in the baseline", "; ".join(later.only_before)),
        ("Only here", "; ".join(later.only_after)),
    )
    return Against(
        title=later.folder,
        facts=tuple((name, said) for name, said in facts if said),
        accuracy=_accuracy(later),
        changed=_questions([one for one in asked if one[0].changed(one[1])], several),
        unchanged=_questions([one for one in asked if not one[0].changed(one[1])], several),
        sent=_sent(later.sent()),
        epsilon=_epsilon(later.epsilon()),
    )


def _pair(run: RunChange) -> str:
    return run.after if run.before == run.after else f"{run.before} → {run.after}"


def _not_paired(later: LaterAudit) -> list[str]:
    """What the differences are from that are not over pairs."""
    attacks = [one.change for run in later.runs for one in run.attacks]
    both = (("accuracy", [one.change for one in later.accuracies]), ("scores", attacks))
    return list(dict.fromkeys(f"{name}: {one.basis}" for name, changes in both for one in changes if not one.paired))


def _accuracy(later: LaterAudit) -> Table:
    rows = (
        (
            text(IMAGES[one.images], one.after),
            figure(share(one.change.before)),
            figure(share(one.change.after)),
            _difference(one.change, "points"),
            _outcome(one.change),
        )
        for one in later.accuracies
    )
    return Table(("Accuracy", "Before", "After", "Difference", "Outcome"), tuple(rows))


def _questions(asked: Sequence[tuple[RunChange, QuestionChange]], several: bool) -> Table | None:
    heads = ("Question", "Before", "After", "Attack", "Its score", "Difference", "Outcome")
    return Table(heads, tuple(_question(run, one, several) for run, one in asked)) if asked else None


def _question(run: RunChange, one: QuestionChange, several: bool) -> tuple[Cell, ...]:
    asked, shown = one.question, run.shown(one)
    about = ", ".join(filter(None, (f"by {role(asked.adversary)}", scope(asked), run.after if several else "")))
    title = text(f"{upper(artifact(asked_of(asked)))}: {SECRETS[asked.secret]}", about)
    verdicts = (_verdict(one.before), _verdict(one.after))
    outcome = Cell("Worse", "worse", "moved to leak") if one.moved_to_leak else None
    if shown is None:
        return (title, *verdicts, text("–"), text("–"), text("–"), outcome or text("–"))
    change = shown.change
    score = f"{measured(change.before)} → {measured(change.after)}"
    return (
        title,
        *verdicts,
        text(spoken(shown.attack), metric(shown.metric)),
        text(score),
        _difference(change),
        outcome or _outcome(change),
    )


def _verdict(question: Question | None) -> Cell:
    return verdict(question.verdict) if question else text("not asked")


def _difference(change: Change, unit: str = "") -> Cell:
    """The difference with its sign; accuracies in percentage points."""
    gap = change.difference
    if gap.value is None:
        return figure(measured(gap))
    if unit:
        ends = gap.ci95 and (100 * gap.ci95[0], 100 * gap.ci95[1])
        gap = gap.model_copy(update={"value": 100 * gap.value, "ci95": ends})
    plus = "+" if change.difference.value and change.difference.value > 0 else ""
    return figure(f"{plus}{measured(gap)} {unit}".rstrip(), change.basis if change.paired else "not paired")


def _outcome(change: Change) -> Cell:
    p = "" if change.p_holm is None else f"p {p_value(change.p)}, corrected {p_value(change.p_holm)}"
    return Cell(OUTCOMES[change.outcome], change.outcome, p)


def _sent(found: Sequence[tuple[str, BytesChange]]) -> Table | None:
    rows = tuple(
        (
            text(spoken(one.kind), runs),
            text(f"{one.sender} → {one.to}"),
            *(_bytes(size) for size in (one.bytes_before, one.bytes_after)),
            *(count("none" if times is None else f"{times:,}") for times in (one.times_before, one.times_after)),
        )
        for runs, one in found
    )
    heads = ("Artifact", "From → to", "Bytes per client and round, before", "After", "Times, before", "After")
    return Table(heads, rows) if rows else None


def _bytes(size: int | None) -> Cell:
    return count("none") if size is None else count(f"{size:,}", rounded_bytes(size))


def _epsilon(found: Sequence[tuple[str, EpsilonChange]]) -> Table | None:
    names = {
        "proved": "Proved ε, at most",
        "delta": "at δ",
        "clopper_pearson": "Measured ε, at least (Clopper-Pearson)",
    }
    names |= {"gdp": "Measured ε, at least (GDP)", "one_run": "Measured ε, at least (one run)"}
    rows = tuple(
        (text(BOUNDS[one.name], runs), *(_bound(value) for value in (one.before, one.after))) for runs, one in found
    )
    return Table(("Epsilon", "Before", "After"), rows) if rows else None


def _bound(value: float | None) -> Cell:
    return count("none" if value is None else plain(value))


def _times(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
