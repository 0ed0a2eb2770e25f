"""The results contract, schema 1 of results.json: what a run measured, in words and numbers only.

An interval is always 95%, a missing value is null with a reason, and a verdict that its own numbers do not carry is
refused: "leak" needs a corrected p of at most 0.025 against named controls, "no leak found" needs a positive control
that succeeded.
"""

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from fdgpriv._attack_finding import (
    LEVEL,
    AttackFinding,
    CurvePoint,
    Direction,
    Leakage,
    Measured,
    PositiveControl,
    RoundsPoint,
    Threat,
    Units,
    Verdict,
)
from fdgpriv._contract import (
    Amount,
    Count,
    Entry,
    FileName,
    Json,
    Probability,
    Table,
    Text,
    Word,
    one_line,
    read_bytes,
    write_text,
)

__all__ = [
    "LEVEL",
    "ArtifactRow",
    "AttackFinding",
    "ChosenUtility",
    "Claim",
    "ClientUtility",
    "CurvePoint",
    "DatasetNote",
    "Direction",
    "EpsilonMeasured",
    "ImageCount",
    "Images",
    "Leakage",
    "Measured",
    "PersonalUtility",
    "PositiveControl",
    "Privacy",
    "Results",
    "RoundUtility",
    "RoundsPoint",
    "Run",
    "RunFigure",
    "Threat",
    "Timing",
    "Units",
    "Utility",
    "Verdict",
    "schema_text",
]

LARGEST_FILE = 64 * 2**20  # bytes of results.json that `load` reads


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


def _is_share(figure: Measured) -> Measured:
    """`figure` where value and interval are in [0, 1]; a ValueError otherwise."""
    for number in (figure.value, *(figure.ci95 or ())):
        if number is not None and not 0 <= number <= 1:
            raise ValueError(f"want a share in [0, 1], got {number}")
    return figure


Share = Annotated[Measured, AfterValidator(_is_share)]


class RoundUtility(Entry):
    """Accuracy after so many rounds; null, with a reason, where training diverged.

    Of the model that the server sends in this round, and after the last one of the final model. Where each client has a
    model of its own, as in PersonalUtility over those that the server sent; before the last round each of these models is
    tried on every third target image, so that in turn every image is.
    """

    round: Count
    source_accuracy: Probability | None
    target_accuracy: Probability | None
    reason: Text | None = None

    @model_validator(mode="after")
    def _null_has_a_reason(self) -> Self:
        if None in (self.source_accuracy, self.target_accuracy) and not self.reason:
            raise ValueError("want a reason where an accuracy is null, got none")
        return self


class ClientUtility(Entry):
    """What one client's own model is worth, on its held-out part and on the unseen domain."""

    client: Word
    source_accuracy: Probability | None
    target_accuracy: Probability


class PersonalUtility(Entry):
    """What models of their own are worth to their clients: each on its client's held-out part, and on the unseen domain.

    Source accuracy is over all held-out images, target accuracy the mean over the models.
    """

    source_accuracy: Share
    target_accuracy: Share
    clients: tuple[ClientUtility, ...]


class ChosenUtility(Entry):
    """Accuracy of the model that one rule takes of those in `Utility.rounds`.

    Attributes:
        rounds: After which rounds: one, or several whose accuracies are averaged, as are the ends of their intervals.
        source_accuracy, target_accuracy: As there, with intervals over images.
    """

    rounds: Annotated[tuple[Count, ...], Field(min_length=1)]
    source_accuracy: Share
    target_accuracy: Share


class Utility(Entry):
    """What the trained model is worth, on the clients' held-out parts and on the unseen domain.

    The accuracies outside `rounds` and the three rules are those of the model that the method returns: some methods take
    the last round's, others select one by accuracies that clients report. The rules are the same for all methods.

    Attributes:
        rounds: Every round whose model was evaluated; the evaluator does that, and nobody in the federation is told.
        last_round: Of the model after all rounds.
        selected_round: Of the round with the best source accuracy among `rounds`, the earliest of several.
        last_five: The mean over the last five of `rounds`, or over all where there are fewer.
        personal: Of the clients' own models, where the method ends with such. `rounds` and the rules are of those too;
            the rest is of the model for everyone.
    """

    source_accuracy: Share
    target_accuracy: Share
    calibration_error: Share
    rounds: tuple[RoundUtility, ...] = ()
    last_round: ChosenUtility | None = None
    selected_round: ChosenUtility | None = None
    last_five: ChosenUtility | None = None
    personal: PersonalUtility | None = None


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


class ImageCount(Entry):
    """How many images clients train on, clients hold out for validation, adversaries may hold, shadow clients hold."""

    train: Count
    held_out: Count
    public: Count
    shadow: Count


class Images(ImageCount):
    """What the images of all source domains are used for, and of each; only those that clients hold were trained on."""

    domains: Table[ImageCount]


class Run(Entry):
    """One method, one target, one seed, one defense: utility, ledger, attacks, privacy, claims.

    Attributes:
        utility: Null where training diverged or failed.
        failed: Why training ended early: which client failed, in which round, and how; null where none did. The ledger
            then holds what crossed before, and nothing was attacked.
        training: Figures that the method logged while it trained, by name; none of them crossed the wire.
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
    attacks: tuple[AttackFinding, ...]
    privacy: Privacy
    claims: tuple[Claim, ...] = ()
    figures: tuple[RunFigure, ...] = ()
    not_measured: tuple[Text, ...] = ()
    training: dict[Word, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _nothing_of_a_failed_run(self) -> Self:
        if self.failed is not None and (self.utility is not None or self.attacks):
            raise ValueError(f"want no utility and no attacks of a run that failed, got some beside {self.failed!r}")
        return self


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
