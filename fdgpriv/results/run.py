"""What one run measured: its ledger, utility, questions, attacks, privacy and claims, as results.json has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from fdgpriv.federation.weights import Weights
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.question import Question
from fdgpriv.results.recording_check import RecordingCheck
from fdgpriv.results.utility_finding import Utility
from fdgpriv.utils.records import Amount, ByName, Count, Entry, FileName, Probability, Text, Word

_UNITS = {"image": "one image of a client", "client": "a client with all its images"}


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
    """Proved and measured epsilon, with a statement of the guarantee.

    Attributes:
        unit: What the proved epsilon is about: one image of a client, or a client with all its images; null where nothing is
            proved, or where the defense does not say.
        not_covered: Kinds of artifact that clients share without that guarantee.
    """

    epsilon_proved: Amount | None
    delta: Probability | None
    statement: Word
    unit: Literal["image", "client"] | None = None
    not_covered: tuple[Word, ...] = ()
    epsilon_measured: EpsilonMeasured = EpsilonMeasured()
    ceiling: Amount | None = None
    verdict: Literal["consistent", "violation", "saturated", "no_guarantee", "not_measured"]

    @property
    def proved(self) -> str:
        """The proved epsilon with unit, delta and what it does not cover, in one line; empty if nothing is proved."""
        if self.epsilon_proved is None:
            return ""
        unit = _UNITS.get(self.unit or "", "the unit of its statement")
        rest = f"; not covered: {', '.join(self.not_covered)}" if self.not_covered else ""
        return f"epsilon {self.epsilon_proved:g} (delta {self.delta:g}) for {unit}{rest}"

    @model_validator(mode="after")
    def _no_epsilon_without_a_proof(self) -> Self:
        if (self.epsilon_proved is None) != (self.verdict == "no_guarantee"):
            raise ValueError(f"want no_guarantee exactly where nothing is proved, got {self.verdict}")
        measured = set(self.epsilon_measured.model_dump().values()) != {None}
        if self.verdict in ("consistent", "violation", "saturated") and not measured:
            raise ValueError(f"want a measured epsilon for the verdict {self.verdict}, got none")
        return self


class MeasuredCost(Entry):
    """The accuracy on the unseen domain with a defense and without it, of earlier trainings whose costs are shipped.

    Attributes:
        method, defense: Specifications; the method only with the settings that matter to the defense.
        setting: Dataset, target, clients and the like, in words.
        seeds: Number of trainings.
        without, under: The mean accuracy without the defense and under it.
        chance: Of naming the most frequent class.
    """

    method: Word
    defense: Word
    setting: Text
    seeds: Count
    without: Probability
    under: Probability
    chance: Probability

    @property
    def ended(self) -> bool:
        """Whether the defense ended the training: less than half of what was learned is left."""
        return self.under < (self.without + self.chance) / 2


class Claim(Entry):
    """One sentence of a paper: quote, measurement, verdict and evidence; a statement of design has no verdict."""

    id: Word
    kind: Literal["claim", "design"] = "claim"
    quote: Text
    measurement: Text
    evidence: tuple[Text, ...] = ()
    verdict: Literal["supported", "refuted", "undecided"] | None
    reason: Text
    failed: bool = False  # the rule that decides it raised an exception

    @model_validator(mode="after")
    def _decided_by_evidence(self) -> Self:
        if (self.verdict is None) != (self.kind == "design"):
            raise ValueError(f"want a verdict for a claim and none for design, got {self.verdict} for {self.id}")
        if self.verdict in ("supported", "refuted") and not self.evidence:
            raise ValueError(f"want evidence for the claim {self.id}, {self.verdict}, got none")
        return self


class Remedy(Entry):
    """A defense that applies to the method of a run.

    Attributes:
        defense: Its specification, as on the command line.
        settings: Settings of the method that it needs, ``name=value``.
        hides: The kinds of artifact of which the server sees only sums over clients under it.
        proves: The kinds that its guarantee covers.
        epsilon, delta, unit: Of that guarantee; null if it proves nothing.
        not_covered: The kinds that clients share without it.
        costs: What it cost in accuracy where that was measured: with this method, else with others.
    """

    defense: Word
    settings: tuple[Word, ...] = ()
    hides: tuple[Word, ...] = ()
    proves: tuple[Word, ...] = ()
    epsilon: Amount | None = None
    delta: Probability | None = None
    unit: Literal["image", "client"] | None = None
    not_covered: tuple[Word, ...] = ()
    costs: tuple[MeasuredCost, ...] = ()

    @property
    def ended_training(self) -> bool:
        """Whether all trainings with it whose costs are known ended."""
        return bool(self.costs) and all(cost.ended for cost in self.costs)


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


class ImagesByDomain(ImageCount):
    """Numbers of images of all source domains and of each; only those of clients were trained on."""

    domains: ByName[ImageCount]


class Run(Entry):
    """One method, one target, one seed, one defense: utility, ledger, attacks, privacy, claims.

    Attributes:
        utility: Null where training diverged or failed.
        failed: Why training ended early: the client, the round and the reason; null if it did not. The ledger then has the
            artifacts shared before, and nothing was attacked.
        diverged: Why training ended with figures that are not finite; null if it did not. Nothing was attacked.
        failures: Measurements that raised an exception, one line each; attacks and claims that did say so themselves.
        training: Figures from the method's training log, by name; they were not shared.
        weights: Of clients in the averages that the server takes: ``samples`` or ``uniform``, which is also said where no
            client has over 5 % more images than another; null if it takes none, or nothing was trained.
        remedies: Defenses that apply to the method, with their suggested settings.
        checks: Of a recording against what its user gave; empty for trainings of this package.
    """

    method: Word
    dataset: Word
    target: Word | None
    seed: int
    defense: Word
    images: ImagesByDomain | None = None
    utility: Utility | None
    failed: Text | None = None
    diverged: Text | None = None
    failures: tuple[Text, ...] = ()
    artifacts: tuple[ArtifactRow, ...]
    questions: tuple[Question, ...] = ()
    attacks: tuple[AttackFinding, ...]
    privacy: Privacy
    claims: tuple[Claim, ...] = ()
    figures: tuple[RunFigure, ...] = ()
    not_measured: tuple[Text, ...] = ()
    training: dict[Word, float] = Field(default_factory=dict)
    weights: Weights | None = None
    remedies: tuple[Remedy, ...] = ()
    checks: tuple[RecordingCheck, ...] = ()

    @model_validator(mode="after")
    def _questions_are_about_its_attacks(self) -> Self:
        beyond = max((i for question in self.questions for i in question.attacks), default=-1)
        if beyond >= len(self.attacks):
            raise ValueError(f"want questions about the run's {len(self.attacks)} attacks, got number {beyond}")
        return self

    @model_validator(mode="after")
    def _nothing_of_a_failed_run(self) -> Self:
        if self.ended is not None and (self.utility is not None or self.attacks):
            raise ValueError(f"want no utility and no attacks of a run that failed, got some beside {self.ended!r}")
        return self

    @property
    def ended(self) -> str | None:
        """Why training ended without a model; None if it did not."""
        return self.failed or self.diverged

    @property
    def shares_nothing(self) -> bool:
        """Whether its training ended, and no artifact crossed the wire."""
        return self.ended is None and not self.artifacts

    def failed_parts(self) -> Iterator[str]:
        """One line for everything that failed after the training: measurements, attacks and claims."""
        yield from self.failures
        for attack in self.attacks:
            if attack.failed:
                reason = (attack.reason or "").removeprefix("failed: ")
                yield f"{attack.attack} by {attack.threat.role} on {attack.kind}: {reason}"
        yield from (
            f"claim {claim.id}: {claim.reason.removeprefix('failed: ')}" for claim in self.claims if claim.failed
        )


@dataclass(frozen=True)
class AskedQuestion:
    """One question, and the run that it is asked of."""

    method: str
    target: str | None
    seed: int
    defense: str
    question: Question
