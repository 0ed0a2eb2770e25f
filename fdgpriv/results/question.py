"""One question of results.json: what can this adversary learn of this secret from this artifact, and the verdict."""

from typing import Literal, Self

from pydantic import model_validator

from fdgpriv.statistics.grades import GRADES, Grade, words
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import FALSE_DISCOVERIES, Because, Verdict
from fdgpriv.statistics.resolution import POWER
from fdgpriv.utils.records import Amount, Count, Entry, Probability, Text, Word

Secret = Literal["domain", "labels", "size", "membership", "content", "average_look", "identity"]
Scope = Literal["client", "domain"]
WORST_FIRST: tuple[Verdict, ...] = ("leak", "sent_in_clear", "inconclusive", "no_leak_found", "not_applicable")


class Strongest(Entry):
    """The shown attack of a question: its metric, and its strongest control."""

    attack: Word
    metric: Word
    value: Measured
    control: Word
    control_value: Measured


class Question(Entry):
    """One verdict: what an adversary learns of one secret from one kind of artifact that crossed the wire.

    Attributes:
        artifact: The kind of artifact, or the name of the target where that differs.
        level: image, client or group.
        adversary: Its role.
        also: Other adversaries whose attacks make the same predictions to the last bit: one measurement, counted once.
        secret: What is asked for.
        scope: ``client``: beyond what the client's domain tells; ``domain``: anything that noise and public means do not.
        verdict: The answer; ``sent_in_clear`` if the artifact is the secret: a fact, without a test, a p or a grade.
        grade: Of a leak, the highest of the attacks with p <= 0.025 after correction over the question's attacks: trace,
            moderate or severe.
        grade_interval: Of a leak, the grades of both ends of that attack's lead.
        share_of_achievable: How far the strongest attack goes from its strongest control to a perfect attack, in [0, 1]; null
            where there is no perfect score.
        lead: Of the strongest attack over its strongest control, in the metric's unit, higher leaks, with its two-sided 95 %
            interval; of a leak it is widened for having been selected, and for being the largest of several attacks.
        strongest: The attack with the largest lead, in multiples of the least that matters, among those with p <= 0.025 after
            correction over the question's attacks, else among all; of no leak found the one with the largest lead on its
            positive control, which would have found a leak. None where nothing was tested.
        p: Simes' p over the attacks; `q` and `p_holm` are corrected over the questions of the report.
        beyond_doubt: Whether a leak has p_holm <= 0.025 too.
        resolution: The smallest true lead that would have been found with probability 0.8, in the metric's unit.
        upper_bound: Larger leads are excluded; null where the attack excludes nothing.
        planted: How often a leak of relevant size planted in these artifacts is found; null where that was not tried.
        relevant: The least lead that matters, in the metric's unit.
        inconclusive_because: weak_attack, too_coarse, not_after_correction, or failed: its attacks raised an exception.
        reason: In one sentence; of an inconclusive question what would decide it.
        recovered: The share of artifacts whose single-image styles were recovered exactly, where that was tried.
        attacks: Indices into the run's attacks.
    """

    artifact: Word
    level: Word
    adversary: Word
    secret: Secret
    scope: Scope
    also: tuple[Word, ...] = ()
    verdict: Verdict
    grade: Grade | None = None
    grade_interval: tuple[Grade, Grade] | None = None
    share_of_achievable: Probability | None = None
    lead: Measured | None = None
    strongest: Strongest | None = None
    p: Probability | None = None
    q: Probability | None = None
    p_holm: Probability | None = None
    beyond_doubt: bool = False
    resolution: Amount | None = None
    upper_bound: float | None = None
    planted: Probability | None = None
    relevant: Amount | None = None
    inconclusive_because: Because | None = None
    reason: Text
    recovered: Measured | None = None
    attacks: tuple[Count, ...]

    @model_validator(mode="after")
    def _verdict_is_carried(self) -> Self:
        p, q = self.p, self.q
        if self.verdict == "leak" and not (p is not None and q is not None and p <= LEVEL and q <= FALSE_DISCOVERIES):
            raise ValueError(f"want p <= {LEVEL} and q <= {FALSE_DISCOVERIES} for a leak, got {p} and {q}")
        if self.verdict == "no_leak_found":
            if p is None or q is None or p <= LEVEL or q <= FALSE_DISCOVERIES:
                raise ValueError(f"want p > {LEVEL} and q > {FALSE_DISCOVERIES} for no leak found, got {p} and {q}")
            if self.upper_bound is not None and (self.relevant is None or self.upper_bound >= self.relevant):
                raise ValueError(
                    f"want upper_bound < relevant for no leak found, got {self.upper_bound} and {self.relevant}"
                )
            if self.planted is None or self.planted < POWER:
                raise ValueError(f"want planted >= {POWER} for no leak found, got {self.planted}")
        if (self.verdict == "leak") != (self.grade is not None):
            raise ValueError(f"want a grade exactly where a leak was found, got {self.grade} for {self.verdict}")
        if (self.verdict == "inconclusive") != (self.inconclusive_because is not None):
            raise ValueError(f"want inconclusive_because exactly where inconclusive, got {self.verdict}")
        if self.verdict in ("leak", "no_leak_found") and self.strongest is None:
            raise ValueError(f"want the strongest attack of a question with the verdict {self.verdict}, got none")
        return self

    @property
    def adversaries(self) -> tuple[str, ...]:
        """Every adversary that this question is about."""
        return (self.adversary, *self.also)

    @property
    def graded(self) -> str:
        """The verdict in words; of a leak its grade with that of its interval: ``moderate leak (trace to moderate)``."""
        if self.grade is None or self.grade_interval is None:
            return self.verdict.replace("_", " ")
        lower, upper = self.grade_interval
        return f"{self.grade} leak" + ("" if lower == upper else f" ({words(lower, upper)})")


def worst_first(question: Question) -> tuple[int, int, float]:
    """Sorts questions: leaks first, by grade, then by the lead in multiples of the least that matters."""
    lead = (question.lead.value if question.lead else None) or 0.0
    grade = GRADES.index(question.grade) if question.grade else -1
    return WORST_FIRST.index(question.verdict), -grade, -lead / (question.relevant or 1.0)
