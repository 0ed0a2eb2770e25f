"""Compares later audits with a baseline and corrects all tests together."""

from collections.abc import Iterator, Sequence

from fdgpriv._version import __version__
from fdgpriv.compare.accuracies import accuracy_changes
from fdgpriv.compare.attacks import attack_changes
from fdgpriv.compare.audits import Audit, asked_differently, made_differently
from fdgpriv.compare.matching import matched, title
from fdgpriv.compare.questions import question_changes
from fdgpriv.compare.shared import bytes_changes, epsilon_changes
from fdgpriv.results.change import AccuracyChange, AttackChange, Change
from fdgpriv.results.comparison import Comparison, LaterAudit, RunChange
from fdgpriv.results.run import Run
from fdgpriv.statistics.multiplicity import holm


def compared(audits: Sequence[Audit]) -> Comparison:
    """The first audit against each of the others.

    Raises:
        ValueError: No runs match, or stored scores are damaged.
    """
    before, *later = audits
    found = [_later(before, after) for after in later]
    ps = [change.p for one in found for change in one.changes() if change.p is not None]
    corrected = iter(holm(ps))
    return Comparison(
        fdgpriv=__version__,
        baseline=before.name,
        tests=len(ps),
        later=tuple(_corrected(one, corrected) for one in found),
    )


def _later(before: Audit, after: Audit) -> LaterAudit:
    try:
        found = matched(before.results.runs, after.results.runs)
    except ValueError as error:
        raise ValueError(f"{before.name}, {after.name}: {error}") from None
    old, new = ({id(pair[side]) for pair in found.pairs} for side in (0, 1))
    return LaterAudit(
        folder=after.name,
        matched_by=found.by,
        differs=made_differently(before, after),
        accuracies=accuracy_changes(found),
        runs=tuple(_run(before, was, after, now) for was, now in found.pairs),
        only_before=tuple(title(run) for run in before.results.runs if id(run) not in old),
        only_after=tuple(title(run) for run in after.results.runs if id(run) not in new),
    )


def _run(before: Audit, was: Run, after: Audit, now: Run) -> RunChange:
    attacks = attack_changes(before, was, after, now)
    return RunChange(
        before=title(was),
        after=title(now),
        differs=asked_differently(before, was, after, now),
        lost=_lost(was, now),
        attacks=tuple(attacks.values()),
        questions=question_changes(was, now, attacks),
        sent=bytes_changes(was, now),
        epsilon=epsilon_changes(was, now),
    )


def _lost(was: Run, now: Run) -> str | None:
    """Why the later run has no trained model, where the earlier one has."""
    return (now.ended or "training diverged") if was.utility is not None and now.utility is None else None


def _corrected(later: LaterAudit, p_holm: Iterator[float]) -> LaterAudit:
    """The same with corrected tests; `p_holm` are in the order of `LaterAudit.changes`."""

    def done(change: Change) -> Change:
        return change if change.p is None else change.corrected(next(p_holm))

    def accuracy(one: AccuracyChange) -> AccuracyChange:
        return one.model_copy(update={"change": done(one.change)})

    def attack(one: AttackChange) -> AttackChange:
        return one.model_copy(update={"change": done(one.change)})

    accuracies = tuple(accuracy(one) for one in later.accuracies)
    runs = tuple(run.model_copy(update={"attacks": tuple(map(attack, run.attacks))}) for run in later.runs)
    return later.model_copy(update={"accuracies": accuracies, "runs": runs})
