"""One attack's entry in results.json: figures, controls, bounds, and its tests by scope."""

from typing import Literal, Self

from pydantic import Field, model_validator

from fdgpriv.results.question import Secret
from fdgpriv.statistics.grades import Grade
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Verdict
from fdgpriv.utils.records import Amount, ByName, Count, Entry, FileName, IntervalEnds, Probability, Text, Word

EXACT = "exact_styles"  # the task of recovering artifacts exactly
EXPOSED = "tpr_at_fpr_0.01"  # a metric: the share of members above a threshold that 1 % of the others exceed
OVER_OWN_COLOUR = "single_image over_own_colour"  # a metric: the lead over the true image's mean colour everywhere


class Threat(Entry):
    """The adversary: role, auxiliary data and capabilities."""

    role: Word
    auxiliary: Text
    capabilities: tuple[Word, ...] = ()


class ViewRead(Entry):
    """How many rounds, and the artifacts of how many clients, the attack read to predict; the observed one included."""

    rounds: Count
    clients: Count


class Units(Entry):
    """The independent units of the test: kind, number, and how many are federated clients or shadow clients."""

    kind: Literal["client", "target"]
    n: Count
    federated: Count | None = None
    shadows: Count | None = None


class Leakage(Entry):
    """The test of one attack in one scope.

    Attributes:
        value: Share of the way from the strongest control to the upper bound, for reading; null with a reason.
        p: One-sided, that the attack beats every control; not corrected.
        control: The strongest control, over which the lead is least.
        lead: That lead with its 95 % interval, in the headline metric's unit, higher leaks.
        resolution: The smallest true lead that would have been found with probability 0.8.
        share_of_achievable: How far the attack goes from its strongest control to a perfect attack; null where there is no
            perfect score.
        grade: Of the lead, where it is `marked`: trace, moderate or severe.
        upper_bound: Larger leads are excluded; null where the attack excludes nothing.
        relevant: The least lead that matters.
        against: The controls, fixed before the run.
        planted: How often a leak of relevant size planted in these artifacts is found; null where that was not tried.
        marked: Whether the attack leaks on its own in a question that leaks.
        verdict: By this test alone, without any correction; a paper's claims are decided by these, corrected over them.
        why: The reason of an inconclusive or absent verdict.
        reason: Why value is null.
    """

    value: float | None
    ci95: IntervalEnds | None = None
    p: Probability | None = None
    control: Word | None = None
    lead: Measured | None = None
    resolution: Amount | None = None
    upper_bound: float | None = None
    relevant: Amount | None = None
    against: tuple[Word, ...] = ()
    planted: Probability | None = None
    marked: bool = False
    share_of_achievable: Probability | None = None
    grade: Grade | None = None
    verdict: Verdict
    why: Text | None = None
    reason: Text | None = None

    @model_validator(mode="after")
    def _no_interval_of_nothing(self) -> Self:
        if self.value is None and self.ci95 is not None:
            raise ValueError(f"want no interval where value is null, got {list(self.ci95)}")
        return self


class PositiveControl(Entry):
    """The same attack with the same budget on an artifact known to leak, in the headline metric."""

    value: Measured
    controls: ByName[Measured] = Field(default_factory=dict)
    lead: float | None = None
    p: Probability | None = None
    succeeded: bool | None = None


class CurvePoint(Entry):
    """The headline metric for artifacts of `images` samples (null: the whole client)."""

    images: int | None = Field(ge=1)
    units: Count
    value: Measured
    controls: ByName[Measured] = Field(default_factory=dict)


class RoundsPoint(Entry):
    """The headline metric from a client's artifacts of `rounds` rounds, of `images` samples each (null: the whole client).

    `rise` is by how much it exceeds that from one round, by pairs. Of the most rounds it is tested whether it rises
    (`p_rise`), and of whole clients whether it beats every control of the client scope (`p`, `verdict`); neither p is
    corrected.
    """

    rounds: int = Field(ge=1)
    images: int | None = Field(ge=1)
    units: Count
    value: Measured
    controls: ByName[Measured] = Field(default_factory=dict)
    rise: Measured | None = None
    p_rise: Probability | None = None
    p: Probability | None = None
    verdict: Verdict | None = None
    reason: Text | None = None


class Unaware(Entry):
    """The headline metric of the same attack on the same artifacts by an adversary that does not know the defense.

    It simulates and calibrates without the defense. It is not tested, and belongs to no question.

    Attributes:
        value: Its figure.
        controls: Of each control that the attack is tested against.
        difference: The adversary that knows the defense minus this one, by pairs.
    """

    value: Measured
    controls: ByName[Measured] = Field(default_factory=dict)
    difference: Measured


class AttackFinding(Entry):
    """One attack on one artifact by one adversary: figures, controls, bounds and its tests by scope.

    `artifact` is a kind of the ledger, or `kind:level`. `shared` is false where the artifact is not on the wire and is
    attacked as a positive control or to decide a claim; such a finding belongs to no question. `trust` is, by number of
    images of the artifact, the weight in [0, 1] that the adversary gave to the artifact against its own baseline.
    `apart` has the headline metric on federated clients and on shadow clients alone. `reason` says why nothing was evaluated;
    `failed` that this is an exception, or an answer that is no prediction.
    """

    attack: Word
    task: Word
    secret: Secret
    artifact: Word
    shared: bool
    threat: Threat
    n: Count
    headline: Word
    chance: Measured | None = None
    metrics: ByName[Measured] = Field(default_factory=dict)
    controls: ByName[ByName[Measured]] = Field(default_factory=dict)
    upper_bounds: ByName[ByName[Measured]] = Field(default_factory=dict)
    positive_control: PositiveControl | None = None
    curve: tuple[CurvePoint, ...] = ()
    rounds: tuple[RoundsPoint, ...] = ()
    view: ViewRead | None = None
    unaware: Unaware | None = None
    units: Units | None = None
    apart: ByName[Measured] = Field(default_factory=dict)
    trust: ByName[Probability] = Field(default_factory=dict)
    leakage: ByName[Leakage] = Field(default_factory=dict)
    reason: Text | None = None
    failed: bool = False
    figures: tuple[FileName, ...] = ()

    @property
    def kind(self) -> str:
        """Kind of the artifact."""
        return self.artifact.partition(":")[0]

    @property
    def level(self) -> str:
        """Level of the artifact, or empty."""
        return self.artifact.partition(":")[2]

    @property
    def main(self) -> Leakage | None:
        """The test in the client scope, or in the domain scope if the attack has no other."""
        return self.leakage.get("client") or self.leakage.get("domain")

    @property
    def recovers(self) -> bool:
        """Whether it recovers artifacts exactly or does not: being nearer than a control is then no leak."""
        return self.task == EXACT

    @model_validator(mode="after")
    def _tests_are_carried(self) -> Self:
        if not self.leakage and not self.reason:
            raise ValueError("want tests by scope, or a reason why nothing was evaluated; got neither")
        for scope, test in self.leakage.items():
            if test.verdict in ("inconclusive", "not_applicable") and not test.why:
                raise ValueError(f"want a reason for the {scope} verdict {test.verdict}, got none")
            if test.p is not None and self.headline not in self.metrics:
                metrics = ", ".join(self.metrics) or "no metric"
                raise ValueError(f"want headline {self.headline!r} among the metrics, got {metrics}")
        return self
