"""One check of a recorded training against what its user gave: the figure, and whether it passed."""

from collections.abc import Sequence
from typing import Literal

from fdgpriv.results.question import Question
from fdgpriv.utils.records import Entry, Text, Word

CheckOutcome = Literal["pass", "note", "error"]
ORDER: tuple[CheckOutcome, ...] = ("error", "note", "pass")


class RecordingCheck(Entry):
    """What one check of a recording measured.

    Attributes:
        check: Its name.
        outcome: ``error`` where verdicts would be wrong, ``note`` where they are weaker or could not be checked, or ``pass``.
        sentence: What was measured, with its figure, and of an error what would mend it.
        artifacts: Kinds of artifact whose questions it concerns; empty for all.
        secrets: Secrets that these questions ask for; empty for all.
    """

    check: Word
    outcome: CheckOutcome
    sentence: Text
    artifacts: tuple[Word, ...] = ()
    secrets: tuple[Word, ...] = ()

    def concerns(self, artifact: str, secret: str) -> bool:
        """Whether a question about this kind of artifact and secret rests on it."""
        if not self.artifacts and not self.secrets:
            return False
        return (not self.artifacts or artifact in self.artifacts) and (not self.secrets or secret in self.secrets)


class RecordingChecks(tuple[RecordingCheck, ...]):
    """All checks of a recording, in order; printed as a table."""

    @property
    def errors(self) -> list[RecordingCheck]:
        """The failed checks on which verdicts would rest."""
        return [check for check in self if check.outcome == "error"]

    @property
    def notes(self) -> list[RecordingCheck]:
        """The checks whose sentence belongs in a report."""
        return [check for check in self if check.outcome == "note"]

    def refusal(self) -> str | None:
        """The first error in one line, with the number of the others; None without errors."""
        if not self.errors:
            return None
        more = len(self.errors) - 1
        return f"{self.errors[0].sentence}{f' (and {more} more, which --check lists)' if more else ''}"

    def __str__(self) -> str:
        counts = {outcome: sum(check.outcome == outcome for check in self) for outcome in ORDER}
        total = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        return "\n".join([*_lines(self), f"{len(self)} checks: {total}"])


def noted(questions: Sequence[Question], checks: Sequence[RecordingCheck]) -> tuple[Question, ...]:
    """The questions; the reason of an answered one continues with the notes that concern it."""
    notes = [check for check in checks if check.outcome == "note"]
    return tuple(_with_notes(question, notes) for question in questions)


def _with_notes(question: Question, notes: Sequence[RecordingCheck]) -> Question:
    sentences = [note.sentence for note in notes if note.concerns(question.artifact, question.secret)]
    if not sentences or question.verdict == "not_applicable":
        return question
    return question.model_copy(update={"reason": f"{question.reason}; check of the recording: {'; '.join(sentences)}"})


def _lines(checks: Sequence[RecordingCheck]) -> list[str]:
    width = max((len(check.check) for check in checks), default=0)
    return [f"{check.outcome:5}  {check.check:{width}}  {check.sentence}" for check in checks]
