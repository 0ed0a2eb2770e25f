"""One question of results.json: what can this adversary learn of this secret from this artifact, and the verdict."""

from typing import Literal, Self

from pydantic import model_validator

from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import FALSE_DISCOVERIES, Because, Verdict
from fdgpriv.utils.records import Amount, Count, Entry, Probability, Text, Word

Secret = Literal["domain", "labels", "size", "membership", "content", "identity"]
Scope = Literal["client", "domain"]
WORST_FIRST: tuple[Verdict, ...] = ("leak", "inconclusive", "no_leak_found", "not_applicable")


class Strongest(Entry):
    """The attack that the verdict rests on: its metric, its strongest control, and its lead over that control.

    The lead's interval is two-sided at 95 %; of a leak it is widened for having been selected.
    """

    attack: Word
    metric: Word
    value: Measured
    control: Word
    control_value: Measured
    lead: Measured


class Question(Entry):
    """One verdict: what an adversary learns of one secret from one kind of artifact that crossed the wire.

    Attributes:
        artifact: The kind of artifact, or the name of the target where that differs.
        level: image, client or group.
        adversary: Its role.
        secret: What is asked for.
        scope: ``client``: beyond what the client's domain tells; ``domain``: anything that noise and public means do not.
        verdict: The answer.
        strongest: What it rests on; None where nothing was tested.
        p: Simes' p over the attacks; `q` and `p_holm` are corrected over the questions of the report.
        beyond_doubt: Whether a leak has p_holm <= 0.025 too.
        resolution: The smallest true lead that would have been found with probability 0.8, in the metric's unit.
        upper_bound: Larger leads are excluded.
        relevant: The least lead that matters, in the metric's unit.
        inconclusive_because: weak_attack, too_coarse or not_after_correction.
        reason: In one sentence; of an inconclusive question what would decide it.
        recovered: The share of artifacts whose single-image styles were recovered exactly, where that was tried.
        attacks: Indices into the run's attacks.
    """

    artifact: Word
    level: Word
    adversary: Word
    secret: Secret
    scope: Scope
    verdict: Verdict
    strongest: Strongest | None = None
    p: Probability | None = None
    q: Probability | None = None
    p_holm: Probability | None = None
    beyond_doubt: bool = False
    resolution: Amount | None = None
    upper_bound: float | None = None
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
            if self.upper_bound is None or self.relevant is None or self.upper_bound >= self.relevant:
                raise ValueError(
                    f"want upper_bound < relevant for no leak found, got {self.upper_bound} and {self.relevant}"
                )
        if (self.verdict == "inconclusive") != (self.inconclusive_because is not None):
            raise ValueError(f"want inconclusive_because exactly where inconclusive, got {self.verdict}")
        if self.verdict in ("leak", "no_leak_found") and self.strongest is None:
            raise ValueError(f"want the strongest attack of a question with the verdict {self.verdict}, got none")
        return self
