"""The results contract, schema 1 of results.json: what a run measured, in words and numbers only.

An interval is always 95%, a missing value is null with a reason, and a verdict that its own numbers do not carry is
refused: "leak" needs a corrected p of at most 0.025 against named controls, "no leak found" needs a positive control
that succeeded.
"""

import json
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from fdgpriv._contract import (
    Amount,
    Count,
    Entry,
    FileName,
    Interval,
    Json,
    Probability,
    Table,
    Text,
    Word,
    one_line,
    read_bytes,
    write_text,
)

LEVEL = 0.025  # one-sided, after correction
LARGEST_FILE = 64 * 2**20  # bytes of results.json that `load` reads

Verdict = Literal["leak", "no_leak_found", "inconclusive", "not_applicable"]
Direction = Literal["higher_leaks", "lower_leaks", "higher_better", "lower_better", "neutral"]


class Measured(Entry):
    """One figure: value, 95% interval, how many things it was measured on, and which way is which."""

    value: float | None
    ci95: Interval | None = None
    n: Count | None = None
    direction: Direction
    reason: Text | None = None

    @model_validator(mode="after")
    def _null_has_a_reason(self) -> Self:
        if self.value is None and not self.reason:
            raise ValueError("want a reason where value is null, got none")
        if self.value is None and self.ci95 is not None:
            raise ValueError(f"want no interval where value is null, got {list(self.ci95)}")
        return self


class ArtifactRow(Entry):
    """One line of the ledger: what left whom, for whom, how large, how often, and who can read it."""

    kind: Word
    level: Word | None = None
    verb: Word
    sender: Word = Field(alias="from")
    to: Word
    via: Word | None = None
    per_client_per_round_bytes: Count
    shape: Text
    dtype: Text
    times: Count
    samples_behind: Count | None = None  # the fewest private samples behind one such artifact
    visible_to: tuple[Word, ...]


class Threat(Entry):
    """Who attacks, what it holds besides the artifact, and what it may do."""

    role: Word
    auxiliary: Text
    capabilities: tuple[Word, ...] = ()


class Units(Entry):
    """What was resampled, how many of them, and how many were federated clients or drawn by the evaluator."""

    kind: Literal["client", "target"]
    n: Count
    federated: Count | None = None
    shadows: Count | None = None


class Leakage(Entry):
    """One verdict line's numbers: share of the way from the strongest control to the upper bound, and the test."""

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
    """The headline metric where `images` samples stand behind the artifact (null: the whole client)."""

    images: int | None = Field(ge=1)
    units: Count
    value: Measured
    controls: Table[Measured] = Field(default_factory=dict)


class AttackFinding(Entry):
    """One attack on one artifact by one adversary: figures, controls, bounds and the two verdict lines.

    `artifact` is a kind of the ledger, or `kind:level`. `shared` is false where the artifact is not on the wire and is
    attacked as a positive control or to decide a claim; such a finding is never a leak of the method.
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
    units: Units | None = None
    leakage: Leakage
    leakage_domain: Leakage | None = None
    verdict: Verdict
    verdict_domain: Verdict
    reason: Text | None = None
    reason_domain: Text | None = None
    figures: tuple[FileName, ...] = ()

    @model_validator(mode="after")
    def _verdicts_are_carried(self) -> Self:
        self._carried("client", self.verdict, self.leakage, self.reason)
        self._carried("domain", self.verdict_domain, self.leakage_domain, self.reason_domain or self.reason)
        return self

    def _carried(self, line: str, verdict: Verdict, leakage: Leakage | None, reason: str | None) -> None:
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


class RoundUtility(Entry):
    """Accuracy after one round; null, with a reason, where training diverged."""

    round: Count
    source_accuracy: Probability | None
    target_accuracy: Probability | None
    reason: Text | None = None

    @model_validator(mode="after")
    def _null_has_a_reason(self) -> Self:
        if None in (self.source_accuracy, self.target_accuracy) and not self.reason:
            raise ValueError("want a reason where an accuracy is null, got none")
        return self


class Utility(Entry):
    """What the trained model is worth, on the clients' held-out parts and on the unseen domain."""

    source_accuracy: Measured
    target_accuracy: Measured
    calibration_error: Measured
    rounds: tuple[RoundUtility, ...] = ()


class EpsilonMeasured(Entry):
    """Lower bounds on epsilon that attacks established; null where the bound was not computed."""

    clopper_pearson: Amount | None = None
    gdp: Amount | None = None
    one_run: Amount | None = None


class Privacy(Entry):
    """What is proved and what is measured about epsilon, in numbers and in one sentence."""

    epsilon_proved: Amount | None
    delta: Probability | None
    statement: Word
    epsilon_measured: EpsilonMeasured = EpsilonMeasured()
    ceiling: Amount | None = None
    verdict: Literal["consistent", "violation", "saturated", "no_guarantee", "not_measured"]

    @model_validator(mode="after")
    def _no_epsilon_without_a_proof(self) -> Self:
        if (self.epsilon_proved is None) != (self.verdict == "no_guarantee"):
            raise ValueError(f"want no_guarantee exactly where nothing is proved, got {self.verdict}")
        measured = set(self.epsilon_measured.model_dump().values()) != {None}
        if self.verdict in ("consistent", "violation", "saturated") and not measured:
            raise ValueError(f"want a measured epsilon for the verdict {self.verdict}, got none")
        return self


class Claim(Entry):
    """One privacy claim of a paper, what decides it, and the attack rows that it rests on."""

    id: Word
    quote: Text
    measurement: Text
    evidence: tuple[Text, ...] = ()
    verdict: Literal["supported", "refuted", "undecided"]
    reason: Text

    @model_validator(mode="after")
    def _decided_by_evidence(self) -> Self:
        if self.verdict != "undecided" and not self.evidence:
            raise ValueError(f"want evidence for the claim {self.id}, {self.verdict}, got none")
        return self


class RunFigure(Entry):
    """A picture in the folder of the run."""

    file: FileName
    caption: Text


class Run(Entry):
    """One method, one target, one seed, one defense: utility, ledger, attacks, privacy, claims."""

    method: Word
    dataset: Word
    target: Word | None
    seed: int
    defense: Word
    utility: Utility | None
    artifacts: tuple[ArtifactRow, ...]
    attacks: tuple[AttackFinding, ...]
    privacy: Privacy
    claims: tuple[Claim, ...] = ()
    figures: tuple[RunFigure, ...] = ()
    not_measured: tuple[Text, ...] = ()


class DatasetNote(Entry):
    """What the images are, and what must not be concluded from them."""

    name: Word
    about: Text
    limits: Text


class Timing(Entry):
    """Where the time went."""

    total_s: Amount | None
    train_s: Amount | None
    attack_s: Amount | None
    peak_rss_mb: Amount | None


class Results(Entry):
    """Everything that one call of the audit measured: results.json."""

    schema_number: Literal[1] = Field(default=1, alias="schema")
    fdgpriv: Word
    command: Text | None = None  # how to run it again, without the folder it wrote to
    config: Json
    environment: Json
    timing: Timing
    dataset: DatasetNote
    interrupted: bool = False
    runs: tuple[Run, ...]

    @model_validator(mode="after")
    def _each_run_once(self) -> Self:
        seen = set()
        for run in self.runs:
            key = (run.method, run.dataset, run.target, run.seed, run.defense)
            if key in seen:
                raise ValueError(f"want each run once, got twice {key}")
            seen.add(key)
        return self

    def text(self) -> str:
        """The JSON text of results.json; equal results give equal text."""
        data = self.model_dump(mode="json", by_alias=True)
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def comparable(self) -> str:
        """The JSON text without timing and environment: equal for two runs of one configuration and seed."""
        data = self.model_dump(mode="json", by_alias=True, exclude={"timing", "environment"})
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: Path) -> None:
        """Writes results.json whole or not at all."""
        write_text(path, self.text())

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Reads what `save` wrote; a file that breaks the contract is a ValueError of one line."""
        data = read_bytes(path, LARGEST_FILE)
        try:
            return cls.model_validate_json(data, strict=True)
        except ValidationError as error:
            raise ValueError(f"want results of schema 1 in {path}, got {one_line(error)}") from error


def schema_text() -> str:
    """The JSON Schema that ships as results_schema.json, generated from the classes of this file."""
    schema = Results.model_json_schema(by_alias=True, mode="serialization")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
