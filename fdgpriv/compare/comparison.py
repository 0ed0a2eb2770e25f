"""Compares later audits with a baseline, run by run, and corrects all tests together."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

from fdgpriv._version import __version__
from fdgpriv.compare.accuracies import accuracy_changes
from fdgpriv.compare.attacks import AttackKey, attack_changes, keyed_attacks
from fdgpriv.compare.audits import Audit, audit_differences, not_comparable, run_differences
from fdgpriv.compare.matching import matched, title
from fdgpriv.results.change import AccuracyChange, AttackChange, BytesChange, Change, EpsilonChange, QuestionChange
from fdgpriv.results.comparison import Comparison, LaterAudit, RunChange
from fdgpriv.results.question import Question
from fdgpriv.results.run import Run
from fdgpriv.statistics.multiplicity import holm


def compared(audits: Sequence[Audit]) -> Comparison:
    """The first audit, the baseline, against each of the others.

    Raises:
        ValueError: No runs match, or stored scores are damaged.
    """
    before, *later = audits
    uncorrected = [_later_audit(before, after) for after in later]
    ps = [change.p for audit in uncorrected for change in audit.changes() if change.p is not None]
    p_holm = iter(holm(ps))
    return Comparison(
        fdgpriv=__version__,
        baseline=before.name,
        tests=len(ps),
        later=tuple(_corrected(audit, p_holm) for audit in uncorrected),
    )


def _later_audit(before: Audit, after: Audit) -> LaterAudit:
    try:
        matches = matched(before.results.runs, after.results.runs)
    except ValueError as error:
        raise ValueError(f"{before.name}, {after.name}: {error}") from None
    old, new = ({id(pair[side]) for pair in matches.pairs} for side in (0, 1))
    later = LaterAudit(
        folder=after.name,
        matched_by=matches.by,
        not_comparable=not_comparable(before, after, matches.pairs),
        differs=audit_differences(before, after),
        accuracies=accuracy_changes(matches),
        runs=tuple(_run_change(before, old_run, after, new_run) for old_run, new_run in matches.pairs),
        only_before=tuple(title(run) for run in before.results.runs if id(run) not in old),
        only_after=tuple(title(run) for run in after.results.runs if id(run) not in new),
    )
    return _with_changes(later, lambda change: change.model_copy(update={"p": None})) if later.not_comparable else later


def _run_change(before: Audit, old_run: Run, after: Audit, new_run: Run) -> RunChange:
    attacks = attack_changes(before, old_run, after, new_run)
    return RunChange(
        before=title(old_run),
        after=title(new_run),
        differs=run_differences(before, old_run, after, new_run),
        lost=_lost_training(old_run, new_run),
        attacks=tuple(attacks.values()),
        questions=_question_changes(old_run, new_run, attacks),
        sent=_bytes_changes(old_run, new_run),
        epsilon=_epsilon_changes(old_run, new_run),
    )


def _lost_training(old_run: Run, new_run: Run) -> str | None:
    """Why only the earlier run has a trained model; None otherwise."""
    lost = old_run.utility is not None and new_run.utility is None
    return (new_run.ended or "training diverged") if lost else None


def _question_changes(old_run: Run, new_run: Run, compared: Collection[AttackKey]) -> tuple[QuestionChange, ...]:
    """The questions of either run, those of the later one first, with the indices of their attacks in `compared`."""
    old, new = ({_question_key(question): question for question in run.questions} for run in (old_run, new_run))
    indices = {key: i for i, key in enumerate(compared)}
    attack_keys = [key for key, _ in keyed_attacks(new_run)]

    def compared_attacks(question: Question | None) -> tuple[int, ...]:
        keys = [attack_keys[i] for i in question.attacks] if question else []
        return tuple(indices[key] for key in keys if key in indices)

    return tuple(
        QuestionChange(before=old.get(key), after=new.get(key), attacks=compared_attacks(new.get(key)))
        for key in {**new, **old}
    )


def _question_key(question: Question) -> tuple[str, ...]:
    return question.artifact, question.level, question.adversary, question.secret, question.scope


def _bytes_changes(old_run: Run, new_run: Run) -> tuple[BytesChange, ...]:
    """Kinds of artifact whose bytes per client and round, or number of crossings, changed."""
    old, new = _bytes_and_times(old_run), _bytes_and_times(new_run)
    return tuple(
        BytesChange(
            kind=kind,
            sender=sender,
            to=receiver,
            bytes_before=old[kind, sender, receiver][0] if (kind, sender, receiver) in old else None,
            bytes_after=new[kind, sender, receiver][0] if (kind, sender, receiver) in new else None,
            times_before=old[kind, sender, receiver][1] if (kind, sender, receiver) in old else None,
            times_after=new[kind, sender, receiver][1] if (kind, sender, receiver) in new else None,
        )
        for kind, sender, receiver in {**new, **old}
        if old.get((kind, sender, receiver)) != new.get((kind, sender, receiver))
    )


def _bytes_and_times(run: Run) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Bytes per client and round, and crossings, over all requests, by kind, sender and receiver."""
    totals: dict[tuple[str, str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in run.artifacts:
        size, times = totals[row.kind, row.sender, row.to]
        totals[row.kind, row.sender, row.to] = size + row.per_client_per_round_bytes, times + row.times
    return dict(totals)


def _epsilon_changes(old_run: Run, new_run: Run) -> tuple[EpsilonChange, ...]:
    """The bounds on epsilon that changed."""
    old, new = _epsilon_bounds(old_run), _epsilon_bounds(new_run)
    return tuple(
        EpsilonChange.model_validate(
            {
                "name": name,
                "before": old[name],
                "after": new[name],
                **(_about(old_run, new_run) if name == "proved" else {}),
            }
        )
        for name in old
        if old[name] != new[name]
    )


def _about(old_run: Run, new_run: Run) -> dict[str, str | None]:
    """The proved epsilons with unit, delta, and what they do not cover."""
    return {"about_before": old_run.privacy.proved or None, "about_after": new_run.privacy.proved or None}


def _epsilon_bounds(run: Run) -> dict[str, float | None]:
    """Proved and measured bounds; not the ceiling of a perfect attack, which follows from the number of canaries."""
    privacy = run.privacy
    measured = privacy.epsilon_measured.model_dump(exclude={"one_run_ceiling"})
    return {"proved": privacy.epsilon_proved, "delta": privacy.delta, **measured}


def _corrected(later: LaterAudit, p_holm: Iterator[float]) -> LaterAudit:
    """The same with corrected tests; `p_holm` are in the order of `LaterAudit.changes`."""
    return _with_changes(later, lambda change: change if change.p is None else change.corrected(next(p_holm)))


def _with_changes(later: LaterAudit, new: Callable[[Change], Change]) -> LaterAudit:
    """The same with another change for each, in the order of `LaterAudit.changes`."""

    def accuracy(entry: AccuracyChange) -> AccuracyChange:
        return entry.model_copy(update={"change": new(entry.change)})

    def attack(entry: AttackChange) -> AttackChange:
        return entry.model_copy(update={"change": new(entry.change)})

    accuracies = tuple(map(accuracy, later.accuracies))
    runs = tuple(run.model_copy(update={"attacks": tuple(map(attack, run.attacks))}) for run in later.runs)
    return later.model_copy(update={"accuracies": accuracies, "runs": runs})
