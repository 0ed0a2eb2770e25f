"""One attack's entry in results.json: figures, controls, bounds and verdicts, validated against each other."""

from typing import Literal, Self

from pydantic import Field, model_validator

from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.records import Count, Entry, FileName, Interval, Probability, Table, Text, Word

LEVEL = 0.025  # one-sided, after correction


Verdict = Literal["leak", "no_leak_found", "inconclusive", "not_applicable"]


class Threat(Entry):
    """The adversary: role, auxiliary data and capabilities."""

    role: Word
    auxiliary: Text
    capabilities: tuple[Word, ...] = ()


class Units(Entry):
    """The independent units of the test: kind, number, and how many are federated clients or shadow clients."""

    kind: Literal["client", "target"]
    n: Count
    federated: Count | None = None
    shadows: Count | None = None


class Leakage(Entry):
    """Figures of one verdict: score normalised from the strongest control (0) to the upper bound (1), and the test."""

    value: float | None
    ci95: Interval | None = None
    p: Probability | None = None
    p_corrected: Probability | None = None
    margin: Interval | None = None  # least lead over any control, in the headline metric's unit: [min L_b, min U_b]
    against: tuple[Word, ...] = ()  # the controls of this line, fixed before the run
    reason: Text | None = None  # why value is null

    @model_validator(mode="after")
    def _correction_only_raises(self) -> Self:
        if self.value is None and self.ci95 is not None:
            raise ValueError(f"want no interval where value is null, got {list(self.ci95)}")
        if self.p_corrected is not None and (self.p is None or self.p_corrected < self.p):
            raise ValueError(f"want p_corrected of at least p, got {self.p_corrected} and {self.p}")
        return self


class PositiveControl(Entry):
    """The same attack with the same budget on an artifact known to leak, in the headline metric."""

    value: Measured
    controls: Table[Measured] = Field(default_factory=dict)
    p: Probability | None = None
    p_corrected: Probability | None = None
    succeeded: bool | None = None

    @model_validator(mode="after")
    def _success_is_significant(self) -> Self:
        if self.succeeded and (self.p_corrected is None or self.p_corrected > LEVEL):
            raise ValueError(f"want p_corrected <= {LEVEL} where a positive control succeeded, got {self.p_corrected}")
        return self


class CurvePoint(Entry):
    """The headline metric for artifacts of `images` samples (null: the whole client)."""

    images: int | None = Field(ge=1)
    units: Count
    value: Measured
    controls: Table[Measured] = Field(default_factory=dict)


class RoundsPoint(Entry):
    """The headline metric from a client's artifacts of `rounds` rounds, of `images` samples each (null: the whole client).

    `rise` is the paired difference from one round. For the largest number of rounds the rise is tested, and for whole
    clients also the lead over every control of the client verdict.
    """

    rounds: int = Field(ge=1)
    images: int | None = Field(ge=1)
    units: Count
    value: Measured
    controls: Table[Measured] = Field(default_factory=dict)
    rise: Measured | None = None
    p_rise: Probability | None = None
    p_rise_corrected: Probability | None = None
    verdict: Verdict | None = None
    p_corrected: Probability | None = None
    reason: Text | None = None

    @model_validator(mode="after")
    def _verdict_is_supported(self) -> Self:
        if self.verdict == "leak" and (self.p_corrected is None or self.p_corrected > LEVEL):
            raise ValueError(f"want p_corrected <= {LEVEL} for a leak over rounds, got {self.p_corrected}")
        if self.verdict is not None and not self.reason:
            raise ValueError(f"want a reason for the verdict {self.verdict} over rounds, got none")
        return self


class AttackFinding(Entry):
    """One attack on one artifact by one adversary: figures, controls, bounds and the verdicts on client and domain.

    `artifact` is a kind of the ledger, or `kind:level`. `shared` is false if the artifact is not shared and is attacked as
    a positive control or to decide a claim; such a finding is never a leak of the method.
    """

    attack: Word
    family: Word
    artifact: Word
    shared: bool
    threat: Threat
    adaptive: bool | None = None
    n: Count
    headline: Word
    chance: Measured | None = None
    metrics: Table[Measured] = Field(default_factory=dict)
    controls: Table[Table[Measured]] = Field(default_factory=dict)
    upper_bounds: Table[Table[Measured]] = Field(default_factory=dict)
    positive_control: PositiveControl | None = None
    curve: tuple[CurvePoint, ...] = ()
    rounds: tuple[RoundsPoint, ...] = ()
    units: Units | None = None
    leakage: Leakage
    leakage_domain: Leakage | None = None
    verdict: Verdict
    verdict_domain: Verdict
    reason: Text | None = None
    reason_domain: Text | None = None
    figures: tuple[FileName, ...] = ()

    @property
    def kind(self) -> str:
        """Kind of the artifact."""
        return self.artifact.partition(":")[0]

    @property
    def level(self) -> str:
        """Level of the artifact, or empty."""
        return self.artifact.partition(":")[2]

    @model_validator(mode="after")
    def _verdicts_are_supported(self) -> Self:
        self._check_verdict("client", self.verdict, self.leakage, self.reason)
        self._check_verdict("domain", self.verdict_domain, self.leakage_domain, self.reason_domain or self.reason)
        return self

    def _check_verdict(self, line: str, verdict: Verdict, leakage: Leakage | None, reason: str | None) -> None:
        if verdict in ("inconclusive", "not_applicable"):
            if not reason:
                raise ValueError(f"want a reason for the {line} verdict {verdict}, got none")
            return
        if self.headline not in self.metrics:
            known = ", ".join(self.metrics) or "no metric"
            raise ValueError(f"want headline {self.headline!r} among the metrics, got {known}")
        if self.chance is None and not any(self.headline in table for table in self.controls.values()):
            raise ValueError(f"want a control with {self.headline!r} for the {line} verdict {verdict}, got none")
        if leakage is None or leakage.p is None:
            raise ValueError(f"want a p-value for the {line} verdict {verdict}, got none")
        if leakage.value is None and not leakage.reason:
            raise ValueError(f"want a reason where the {line} line's leakage is null, got none")
        if verdict == "leak" and (leakage.p_corrected is None or leakage.p_corrected > LEVEL):
            raise ValueError(f"want p_corrected <= {LEVEL} for the {line} verdict leak, got {leakage.p_corrected}")
        if verdict == "no_leak_found" and leakage.p <= LEVEL:
            raise ValueError(f"want p > {LEVEL} for the {line} verdict no_leak_found, got {leakage.p}")
        if verdict == "no_leak_found" and not (self.positive_control and self.positive_control.succeeded):
            raise ValueError(f"want a positive control that succeeded for the {line} verdict no_leak_found, got none")
