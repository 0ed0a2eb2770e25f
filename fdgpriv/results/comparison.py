"""The contract of compare.json, schema 1: what changed between a baseline audit and later ones."""

import json
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

from pydantic import Field

from fdgpriv.results.change import (
    AccuracyChange,
    AttackChange,
    BytesChange,
    Change,
    EpsilonChange,
    Outcome,
    QuestionChange,
)
from fdgpriv.utils.records import Count, Entry, Text, Word

E = TypeVar("E", bound=Entry)


class RunChange(Entry):
    """A run of the baseline and the later run that it is matched with.

    Attributes:
        before, after: The runs in one line each.
        differs: What differs in what was asked.
        lost: Why the later run has no trained model, where the earlier one has.
        attacks: The attacks on artifacts that crossed the wire that both runs have.
        questions: Those that either run asks, in the order of the later one.
        sent, epsilon: What changed of the ledger and of epsilon.
    """

    before: Text
    after: Text
    differs: tuple[Text, ...]
    lost: Text | None
    attacks: tuple[AttackChange, ...]
    questions: tuple[QuestionChange, ...]
    sent: tuple[BytesChange, ...]
    epsilon: tuple[EpsilonChange, ...]

    def shown(self, question: QuestionChange) -> AttackChange | None:
        """Of the attacks on a question, the surest that changed, else the strongest one of the baseline."""
        strongest = question.before.strongest if question.before else None
        name = strongest.attack if strongest else ""
        attacks = [self.attacks[i] for i in question.attacks]
        return min(attacks, key=lambda attack: (_shown_last(attack), attack.attack != name), default=None)

    def changed(self, question: QuestionChange) -> bool:
        """Whether its verdict moved, only one of the two runs asks it, or an attack's score on it changed."""
        shown = self.shown(question)
        alone = question.before is None or question.after is None
        return alone or question.moved or (shown is not None and shown.change.outcome in ("worse", "better"))


def _shown_last(attack: AttackChange) -> float:
    """The corrected p of an attack whose score changed, else 1."""
    changed = attack.change.outcome in ("worse", "better")
    return attack.change.p_holm or 0.0 if changed else 1.0


class LaterAudit(Entry):
    """A later audit against the baseline.

    Attributes:
        folder: As on the command line.
        matched_by: What the runs of a pair have in common.
        not_comparable: Presets, clients or images that differ; then nothing is tested, and nothing counts as worse.
        differs: What differs in how the two audits were made.
        only_before, only_after: Runs without a partner, in one line each.
    """

    folder: Text
    matched_by: tuple[Word, ...]
    not_comparable: tuple[Text, ...] = ()
    differs: tuple[Text, ...]
    accuracies: tuple[AccuracyChange, ...]
    runs: tuple[RunChange, ...]
    only_before: tuple[Text, ...]
    only_after: tuple[Text, ...]

    def changes(self) -> Iterator[Change]:
        """Every figure that is compared."""
        yield from (accuracy.change for accuracy in self.accuracies)
        yield from (attack.change for run in self.runs for attack in run.attacks)

    def sent(self) -> list[tuple[str, BytesChange]]:
        """Changes of the ledger, each with the runs in which it occurs; no name if in all."""
        return self._with_runs([(run.after, change) for run in self.runs for change in run.sent])

    def epsilon(self) -> list[tuple[str, EpsilonChange]]:
        """Changes of epsilon, likewise."""
        return self._with_runs([(run.after, change) for run in self.runs for change in run.epsilon])

    def _with_runs(self, changes: Iterable[tuple[str, E]]) -> list[tuple[str, E]]:
        runs: dict[E, list[str]] = {}
        for run, change in changes:
            runs.setdefault(change, []).append(run)
        return [("" if len(names) == len(self.runs) else "; ".join(names), change) for change, names in runs.items()]

    def moved_to_leak(self) -> int:
        """Number of questions whose verdict became a leak; 0 where the audits are not comparable."""
        return (
            0 if self.not_comparable else sum(question.moved_to_leak for run in self.runs for question in run.questions)
        )

    @property
    def warning(self) -> str:
        """``not comparable: preset: quick → default``; empty where they are."""
        return f"not comparable: {'; '.join(self.not_comparable)}" if self.not_comparable else ""

    @property
    def worse(self) -> bool:
        """Whether a figure is worse after the correction, a verdict moved to leak, or a training was lost.

        Never where the audits are not comparable.
        """
        if self.not_comparable:
            return False
        worse = any(change.outcome == "worse" for change in self.changes())
        return worse or self.moved_to_leak() > 0 or any(run.lost for run in self.runs)


class Comparison(Entry):
    """A baseline and later audits; `tests` is the number of tests that are corrected together."""

    schema_number: Literal[1] = Field(default=1, alias="schema")
    fdgpriv: Word
    baseline: Text
    tests: Count
    later: tuple[LaterAudit, ...]

    def changes(self) -> Iterator[Change]:
        """Every figure that is compared, of all later audits."""
        return (change for audit in self.later for change in audit.changes())

    def count(self, outcome: Outcome) -> int:
        """Number of figures with this outcome."""
        return sum(change.outcome == outcome for change in self.changes())

    def text(self) -> str:
        """The JSON text of compare.json."""
        data = self.model_dump(mode="json", by_alias=True)
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
