"""The results contract, schema 3 of results.json: what a run measured, in words and numbers only.

An interval is 95 % unless it says otherwise, a missing value is null with a reason, and a verdict that its own numbers do
not carry is refused.
"""

import json
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from fdgpriv.results.records import FlatRow, by_attack
from fdgpriv.results.run import AskedQuestion, Run
from fdgpriv.utils.files import read_bytes, write_text
from fdgpriv.utils.records import Amount, Entry, Json, Text, Word, one_line

SCHEMA: Literal[3] = 3
LARGEST_FILE = 64 * 2**20  # bytes of results.json that `load` reads


class DatasetNote(Entry):
    """Description of the dataset, its limitations, and faults of the data that put its results in question.

    `sha256` is the digest of all its images and labels as loaded, also of those that `--images` leaves out; null in files of
    versions that did not compute it.
    """

    name: Word
    about: Text
    limits: Text
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    warnings: tuple[Text, ...] = ()

    @property
    def limitations(self) -> str:
        """The warnings and the limits, as one paragraph."""
        return " ".join((*(f"Warning: {warning}." for warning in self.warnings), self.limits))


class Timing(Entry):
    """Run times in seconds and peak memory in MB."""

    total_s: Amount | None
    train_s: Amount | None
    attack_s: Amount | None
    peak_rss_mb: Amount | None


class Results(Entry):
    """Results of one audit: results.json.

    Schema 3 differs from 2: every question has `grade`, `grade_interval`, `share_of_achievable`, `lead` (until then in
    `strongest`), `planted` and `also`; `upper_bound` is null where an attack excludes nothing; the secret `average_look` is
    asked; the priors of `labels` are controls by their own names.
    """

    schema_number: Literal[3] = Field(default=SCHEMA, alias="schema")
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

    @property
    def recorded(self) -> bool:
        """Whether the training was recorded, so that it takes only the options of an audit of a recording."""
        return self.config.get("recording") is not None

    def text(self) -> str:
        """The JSON text of results.json; equal results give equal text."""
        data = self.model_dump(mode="json", by_alias=True)
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def comparable(self) -> str:
        """The JSON text without timing and environment: equal for two runs of one configuration and seed."""
        data = self.model_dump(mode="json", by_alias=True, exclude={"timing", "environment"})
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_records(self) -> list[FlatRow]:
        """One flat row for each attack of each run and each scope: who, on what, its metric with interval, and its test."""
        return by_attack(self.runs)

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
    def load(cls, path: Path) -> Self:
        """Reads a file written by `save`.

        Raises:
            ValueError: The file violates the schema, in one line.
        """
        data = read_bytes(path, LARGEST_FILE)
        try:
            return cls.model_validate_json(data, strict=True)
        except ValidationError as error:
            if (older := _schema_number(data)) not in (None, SCHEMA):
                raise ValueError(
                    f"want results of schema {SCHEMA} in {path}, got schema {older}, whose verdicts follow another rule: run "
                    "its command again with this version, or read it with the version that wrote it"
                ) from error
            raise ValueError(f"want results of schema {SCHEMA} in {path}, got {one_line(error)}") from error


def _schema_number(data: bytes) -> object:
    """The schema number that a JSON document declares; None if it declares none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document.get("schema") if isinstance(document, dict) else None


def schema_text() -> str:
    """The JSON Schema that ships as schema.json, generated from the classes of this file."""
    schema = Results.model_json_schema(by_alias=True, mode="serialization")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
