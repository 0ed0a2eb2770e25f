"""The results contract, schema 2 of results.json: what a run measured, in words and numbers only.

An interval is 95 % unless it says otherwise, a missing value is null with a reason, and a verdict that its own numbers do
not carry is refused.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.question import Question
from fdgpriv.results.utility_finding import Utility
from fdgpriv.utils.files import read_bytes, write_text
from fdgpriv.utils.records import Amount, Count, Entry, FileName, Json, Probability, Table, Text, Word, one_line

LARGEST_FILE = 64 * 2**20  # bytes of results.json that `load` reads


class ArtifactRow(Entry):
    """One line of the ledger of shared artifacts: sender, receiver, size, frequency, and who observes it."""

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


class EpsilonMeasured(Entry):
    """Lower bounds on epsilon that attacks established; null where the bound was not computed.

    `one_run_ceiling` is what a perfect attack would have established with as many canaries in one run; `Privacy.ceiling` that
    with as many runs of two worlds, where there were any.
    """

    clopper_pearson: Amount | None = None
    gdp: Amount | None = None
    one_run: Amount | None = None
    one_run_ceiling: Amount | None = None


class Privacy(Entry):
    """Proved and measured epsilon, with a statement of the guarantee."""

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
    """One privacy claim of a paper: quote, measurement, verdict and evidence."""

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
    """A figure in the folder of the run."""

    file: FileName
    caption: Text


class ImageCount(Entry):
    """Numbers of images: training, held out for validation, public (adversaries'), of shadow clients, in no use."""

    train: Count
    held_out: Count
    public: Count
    shadow: Count
    unused: Count = 0


class Images(ImageCount):
    """Numbers of images of all source domains and of each; only those of clients were trained on."""

    domains: Table[ImageCount]


class Run(Entry):
    """One method, one target, one seed, one defense: utility, ledger, attacks, privacy, claims.

    Attributes:
        utility: Null where training diverged or failed.
        failed: Why training ended early: the client, the round and the reason; null if it did not. The ledger then has the
            artifacts shared before, and nothing was attacked.
        training: Figures from the method's training log, by name; they were not shared.
    """

    method: Word
    dataset: Word
    target: Word | None
    seed: int
    defense: Word
    images: Images | None = None
    utility: Utility | None
    failed: Text | None = None
    artifacts: tuple[ArtifactRow, ...]
    questions: tuple[Question, ...] = ()
    attacks: tuple[AttackFinding, ...]
    privacy: Privacy
    claims: tuple[Claim, ...] = ()
    figures: tuple[RunFigure, ...] = ()
    not_measured: tuple[Text, ...] = ()
    training: dict[Word, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _questions_are_about_its_attacks(self) -> Self:
        beyond = max((i for question in self.questions for i in question.attacks), default=-1)
        if beyond >= len(self.attacks):
            raise ValueError(f"want questions about the run's {len(self.attacks)} attacks, got number {beyond}")
        return self

    @model_validator(mode="after")
    def _nothing_of_a_failed_run(self) -> Self:
        if self.failed is not None and (self.utility is not None or self.attacks):
            raise ValueError(f"want no utility and no attacks of a run that failed, got some beside {self.failed!r}")
        return self


@dataclass(frozen=True)
class AskedQuestion:
    """One question, and the run that it is asked of."""

    method: str
    target: str | None
    seed: int
    defense: str
    question: Question


class DatasetNote(Entry):
    """Description of the dataset and its limitations."""

    name: Word
    about: Text
    limits: Text


class Timing(Entry):
    """Run times in seconds and peak memory in MB."""

    total_s: Amount | None
    train_s: Amount | None
    attack_s: Amount | None
    peak_rss_mb: Amount | None


class Results(Entry):
    """Results of one audit: results.json."""

    schema_number: Literal[2] = Field(default=2, alias="schema")
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

    def to_records(self) -> list[dict[str, str | int | float | bool | None]]:
        """One flat row for each attack of each run and each scope: who, on what, its metric with interval, and its test.

        An attack that was not evaluated has one row without scope.
        """
        return [
            {
                "method": run.method,
                "dataset": run.dataset,
                "target": run.target,
                "seed": run.seed,
                "defense": run.defense,
                "target_accuracy": run.utility.target_accuracy.value if run.utility else None,
                "attack": found.attack,
                "threat": found.threat.role,
                "artifact": found.artifact,
                "shared": found.shared,
                "metric": found.headline,
                "value": figure.value if figure else None,
                "low": figure.ci95[0] if figure and figure.ci95 else None,
                "high": figure.ci95[1] if figure and figure.ci95 else None,
                "n": found.n,
                "scope": scope,
                "p": test.p if test else None,
                "lead": test.lead.value if test and test.lead else None,
                "marked": test is not None and test.marked,
            }
            for run in self.runs
            for found in run.attacks
            for figure in (found.metrics.get(found.headline),)
            for scope, test in (found.leakage.items() or [(None, None)])
        ]

    def questions(self) -> list[AskedQuestion]:
        """Every question of every run, with the run it belongs to."""
        return [
            AskedQuestion(run.method, run.target, run.seed, run.defense, question)
            for run in self.runs
            for question in run.questions
        ]

    def save(self, path: Path) -> None:
        """Writes results.json atomically, into `path` if that is a folder."""
        write_text(path / "results.json" if path.is_dir() else path, self.text())

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Reads a file written by `save`; raises a one-line ValueError if it violates the schema."""
        data = read_bytes(path, LARGEST_FILE)
        try:
            return cls.model_validate_json(data, strict=True)
        except ValidationError as error:
            raise ValueError(f"want results of schema 2 in {path}, got {one_line(error)}") from error


def schema_text() -> str:
    """The JSON Schema that ships as schema.json, generated from the classes of this file."""
    schema = Results.model_json_schema(by_alias=True, mode="serialization")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
