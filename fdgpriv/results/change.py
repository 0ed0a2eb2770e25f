"""Entries of compare.json: a figure, a question, an artifact or an epsilon before and after."""

from typing import Literal

from fdgpriv.results.question import Question
from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.records import Amount, Count, Entry, Probability, Text, Word

Outcome = Literal["worse", "better", "not_shown", "not_tested"]
ERROR = 0.05  # of all tests of a comparison together, two-sided


class Change(Entry):
    """One figure before and after, and the test of its difference.

    Attributes:
        before, after: The figure in the baseline and in the later audit.
        difference: After minus before with its 95 % interval; null with a reason where it cannot be computed.
        paired: Whether the interval is over pairs, of seeds, targets or clients; else it is from the two intervals.
        basis: What it is over; where it is not paired, why.
        p: Two-sided, that the figure did not change; None where it is not tested.
        p_holm: Corrected over all tests of the comparison.
        outcome: worse or better where p_holm <= 0.05.
    """

    before: Measured
    after: Measured
    difference: Measured
    paired: bool
    basis: Text
    p: Probability | None = None
    p_holm: Probability | None = None
    outcome: Outcome = "not_tested"

    def corrected(self, p_holm: float) -> "Change":
        """The same with its corrected p and what follows from it."""
        value = self.difference.value or 0.0
        rises_worsen = self.difference.direction in ("higher_leaks", "lower_better")
        shown: Outcome = "worse" if (value > 0) == rises_worsen else "better"
        outcome: Outcome = shown if p_holm <= ERROR and value else "not_shown"
        return self.model_copy(update={"p_holm": p_holm, "outcome": outcome})


class AccuracyChange(Entry):
    """Accuracy of the returned model of one method under one defense, over all matched runs."""

    before: Text
    after: Text
    images: Literal["target", "source"]
    change: Change


class AttackChange(Entry):
    """The headline score of one attack by one adversary on one kind of artifact, in a pair of runs."""

    attack: Word
    metric: Word
    artifact: Word
    adversary: Word
    change: Change


class QuestionChange(Entry):
    """One question in a pair of runs; None in the run that does not ask it. `attacks` are indices into the pair's."""

    before: Question | None
    after: Question | None
    attacks: tuple[Count, ...] = ()

    @property
    def question(self) -> Question:
        """The later of the two."""
        question = self.after or self.before
        assert question is not None
        return question

    @property
    def moved(self) -> bool:
        """Whether both ask it and the verdicts differ."""
        return self.before is not None and self.after is not None and self.before.verdict != self.after.verdict

    @property
    def lost(self) -> str | None:
        """Why only the baseline answers the question; None if the later run answers too, or the baseline does not."""
        if self.before is None or not _asked(self.before):
            return None
        if self.after is None:
            return "not asked"
        if self.after.inconclusive_because == "failed":
            return "failed"
        return None if _asked(self.after) else "not applicable"

    @property
    def moved_to_leak(self) -> bool:
        """Whether the verdict was another one and is a leak now."""
        return self.moved and self.question.verdict == "leak"


class BytesChange(Entry):
    """Bytes per client and round, and total crossings, of one kind of artifact in one direction; None if it did not cross."""

    kind: Word
    sender: Word
    to: Word
    bytes_before: Count | None
    bytes_after: Count | None
    times_before: Count | None
    times_after: Count | None


class EpsilonChange(Entry):
    """One bound on epsilon, or the delta of the proved epsilon; None without a bound.

    Of the proved epsilon `about_before` and `about_after` are its unit, delta, and what it does not cover.
    """

    name: Literal["proved", "delta", "clopper_pearson", "gdp", "one_run"]
    before: Amount | None
    after: Amount | None
    about_before: Text | None = None
    about_after: Text | None = None


def _asked(question: Question) -> bool:
    """Whether the question was put to an attack that answered."""
    return question.verdict != "not_applicable" and question.inconclusive_because != "failed"
