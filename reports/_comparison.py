"""The content of a comparison of audits: what became worse or better, and the tables; each format only typesets it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.change import ERROR, BytesChange, Change, EpsilonChange, QuestionChange
from fdgpriv.results.comparison import Comparison, LaterAudit, RunChange
from fdgpriv.results.question import Question

from ._numbers import measured, p_value, plain, quantity, rounded_bytes, share
from ._tables import Table, TableCell, count_cell, number_cell, text_cell, verdict_cell
from ._words import BOUNDS, IMAGES, OUTCOMES, SECRETS, artifact, artifact_of, joined, metric, role, scope, spoken, upper


@dataclass(frozen=True)
class AuditChanges:
    """One later audit compared with the baseline; a table without rows is None.

    Attributes:
        title: The folder of the audit.
        warning: What makes it not comparable; empty where it is.
        facts: How its runs were matched, and differences in what was asked.
        accuracy: Accuracies before and after.
        changed: Questions whose verdict or an attack's score changed, and questions of one audit only.
        unchanged: The other questions.
        sent, epsilon: Changes of the ledger and of epsilon.
    """

    title: str
    warning: str
    facts: tuple[tuple[str, str], ...]
    accuracy: Table
    changed: Table | None
    unchanged: Table | None
    sent: Table | None
    epsilon: Table | None


@dataclass(frozen=True)
class ComparisonContent:
    """Everything that a comparison shows; `outcome` colours it."""

    title: str
    outcome: str
    sentence: str
    note: str
    audits: tuple[AuditChanges, ...]


def comparison_content(comparison: Comparison) -> ComparisonContent:
    """The content of the report on this comparison."""
    worse, better = comparison.count("worse"), comparison.count("better")
    moved = sum(later.moved_to_leak() for later in comparison.later)
    outcome = "worse" if any(later.worse for later in comparison.later) else "better" if better else "not_shown"
    sentence = f"{quantity(worse, 'figure')} worse, {better} better; {quantity(moved, 'verdict')} moved to leak."
    if all(later.warning for later in comparison.later):
        outcome, sentence = (
            "not_tested",
            upper(f"{'; '.join(dict.fromkeys(later.warning for later in comparison.later))}."),
        )
    note = (
        f"{quantity(comparison.tests, 'test')}, corrected together by Holm: worse and better are what has p ≤ {ERROR} after "
        "the correction. No change shown is not evidence that nothing changed. Square brackets are 95% intervals, "
        "without correction."
    )
    if outcome == "not_tested":
        note = "Nothing is worse or better between audits that are not comparable. Square brackets are 95% intervals."
    return ComparisonContent(
        title=f"Against {comparison.baseline}",
        outcome=outcome,
        sentence=sentence,
        note=note,
        audits=tuple(map(_audit_changes, comparison.later)),
    )


def _audit_changes(later: LaterAudit) -> AuditChanges:
    questions = [(run, question) for run in later.runs for question in run.questions]
    several = len(later.runs) > 1
    differs = dict.fromkeys([*later.differs, *(difference for run in later.runs for difference in run.differs)])
    facts = (
        ("Runs compared", "; ".join(_pair(run) for run in later.runs)),
        ("Matched by", joined(list(later.matched_by))),
        ("What differs", "; ".join(differs) or "nothing that was asked"),
        ("Not paired", "; ".join(_not_paired(later))),
        ("Not trained any more", "; ".join(f"{run.after}: {run.lost}" for run in later.runs if run.lost)),
        ("Only in the baseline", "; ".join(later.only_before)),
        ("Only here", "; ".join(later.only_after)),
    )
    return AuditChanges(
        title=later.folder,
        warning=upper(f"{later.warning}. Nothing is tested, and nothing gates.") if later.warning else "",
        facts=tuple((name, phrase) for name, phrase in facts if phrase),
        accuracy=_accuracy(later),
        changed=_questions([(run, q) for run, q in questions if run.changed(q)], several, later),
        unchanged=_questions([(run, q) for run, q in questions if not run.changed(q)], several, later),
        sent=_sent(later.sent()),
        epsilon=_epsilon(later.epsilon()),
    )


def _pair(run: RunChange) -> str:
    return run.after if run.before == run.after else f"{run.before} → {run.after}"


def _not_paired(later: LaterAudit) -> list[str]:
    """The bases of differences that are not over pairs."""
    attacks = [attack.change for run in later.runs for attack in run.attacks]
    changes = (("accuracy", [accuracy.change for accuracy in later.accuracies]), ("scores", attacks))
    bases = (f"{name}: {change.basis}" for name, of_kind in changes for change in of_kind if not change.paired)
    return list(dict.fromkeys(bases))


def _accuracy(later: LaterAudit) -> Table:
    rows = (
        (
            text_cell(IMAGES[accuracy.images], accuracy.after),
            number_cell(share(accuracy.change.before)),
            number_cell(share(accuracy.change.after)),
            _difference_cell(accuracy.change, "points"),
            _outcome_cell(accuracy.change),
        )
        for accuracy in later.accuracies
    )
    return Table(("Accuracy", "Before", "After", "Difference", "Outcome"), tuple(rows))


def _questions(questions: Sequence[tuple[RunChange, QuestionChange]], several: bool, later: LaterAudit) -> Table | None:
    headings = ("Question", "Before", "After", "Attack", "Its score", "Difference", "Outcome")
    rows = tuple(_question_row(run, question, several, not later.warning) for run, question in questions)
    return Table(headings, rows) if rows else None


def _question_row(run: RunChange, change: QuestionChange, several: bool, comparable: bool) -> tuple[TableCell, ...]:
    """One question before and after, with the attack that shows the change; the run is named if there are several."""
    question, attack = change.question, run.shown(change)
    about = (f"by {role(question.adversary)}", scope(question), run.after if several else "")
    title = text_cell(
        f"{upper(artifact(artifact_of(question)))}: {SECRETS[question.secret]}",
        ", ".join(phrase for phrase in about if phrase),
    )
    verdicts = (_verdict_cell(change.before), _verdict_cell(change.after))
    outcome = TableCell("Worse", "worse", "moved to leak") if change.moved_to_leak and comparable else None
    if attack is None:
        return (title, *verdicts, text_cell("–"), text_cell("–"), text_cell("–"), outcome or text_cell("–"))
    return (
        title,
        *verdicts,
        text_cell(spoken(attack.attack), metric(attack.metric)),
        text_cell(f"{measured(attack.change.before)} → {measured(attack.change.after)}"),
        _difference_cell(attack.change),
        outcome or _outcome_cell(attack.change),
    )


def _verdict_cell(question: Question | None) -> TableCell:
    return verdict_cell(question.verdict, grade=question.grade) if question else text_cell("not asked")


def _difference_cell(change: Change, unit: str = "") -> TableCell:
    """The difference with its sign; with a unit in percentage points."""
    difference = change.difference
    if difference.value is None:
        return number_cell(measured(difference))
    sign = "+" if difference.value > 0 else ""
    if unit:
        ends = difference.ci95 and (100 * difference.ci95[0], 100 * difference.ci95[1])
        difference = difference.model_copy(update={"value": 100 * difference.value, "ci95": ends})
    return number_cell(f"{sign}{measured(difference)} {unit}".rstrip(), change.basis if change.paired else "not paired")


def _outcome_cell(change: Change) -> TableCell:
    p = "" if change.p_holm is None else f"p {p_value(change.p)}, corrected {p_value(change.p_holm)}"
    return TableCell(OUTCOMES[change.outcome], change.outcome, p)


def _sent(changes: Sequence[tuple[str, BytesChange]]) -> Table | None:
    """Changes of the ledger, each with the runs in which it occurs."""
    rows = tuple(
        (
            text_cell(spoken(change.kind), runs),
            text_cell(f"{change.sender} → {change.to}"),
            *(_bytes_cell(size) for size in (change.bytes_before, change.bytes_after)),
            *(count_cell("none" if n is None else f"{n:,}") for n in (change.times_before, change.times_after)),
        )
        for runs, change in changes
    )
    headings = ("Artifact", "From → to", "Bytes per client and round, before", "After", "Times, before", "After")
    return Table(headings, rows) if rows else None


def _bytes_cell(size: int | None) -> TableCell:
    return count_cell("none") if size is None else count_cell(f"{size:,}", rounded_bytes(size))


def _epsilon(changes: Sequence[tuple[str, EpsilonChange]]) -> Table | None:
    """Changes of epsilon, each with the runs in which it occurs."""
    rows = tuple(
        (
            text_cell(BOUNDS[change.name], runs),
            *(
                count_cell("none" if value is None else plain(value), about or "")
                for value, about in ((change.before, change.about_before), (change.after, change.about_after))
            ),
        )
        for runs, change in changes
    )
    return Table(("Epsilon", "Before", "After"), rows) if rows else None
