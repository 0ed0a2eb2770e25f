"""The recorded artifacts of one kind, known to the evaluator only, and their simulator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.threat import Capability, ThreatModel
from fdgpriv.utils.cache import Cache

EXPENSIVE_ROUNDS = 2  # earlier rounds whose artifacts are simulated, if simulating one is expensive

C = TypeVar("C", bound=Simulator)


@dataclass(frozen=True, eq=False)
class EarlierRound:
    """Recorded artifacts of one kind in a round before that of the series.

    Attributes:
        number: The round, from 0.
        simulator: Simulates artifacts of the round.
        wire: By client, its artifact; for a group's artifact, the one that applies to the client.
        received_model: By client or shadow client, the model it received in that round, if artifacts depend on it.
        whole: Whether the artifacts have all their tensors; otherwise only the small ones, and none can be simulated.
    """

    number: int
    simulator: Simulator
    wire: Mapping[str, Artifact]
    received_model: Mapping[str, ModelState] = field(default_factory=dict)
    whole: bool = True

    def of_clients(self, received_model: Mapping[str, ModelState]) -> "EarlierRound":
        """The round without recorded artifacts, for simulated clients that receive these models."""
        return replace(self, wire={}, received_model=received_model)


@dataclass(frozen=True, eq=False)
class ArtifactSeries(Generic[C]):
    """Artifacts of one kind in one trained federation.

    Attributes:
        simulator: Simulates artifacts of the series.
        level: Level of the recorded artifacts: image, client or group.
        wire: By client, its last recorded artifact; for a group's artifact, the one that applies to the client. Empty if
            only artifacts of single images were shared.
        clients: All clients that shared one.
        received_model: By client or shadow client, the model it received in that round, if artifacts depend on it.
        receiver: By client, another client that received its artifact.
        receivers: By client, the other clients that received its artifact.
        number: The round of these artifacts, from 0.
        history: The earlier recorded rounds, the oldest first.
        earlier: By client, its artifact in the first recorded round, if that is another round.
        needs: Capabilities that an adversary needs to observe the artifacts.
        expensive: Whether simulating or evaluating an artifact is expensive, so that each control has fewer.
        trained: Whether a client trains the artifact, from a model that was trained on its images before.
        kept: Whether clients keep the last layer in the artifact from round to round, so that the model from which a client
            trains contains its own earlier artifact, and a simulated client has none of its own.
        reaches_all: Whether every client receives every other client's artifact in each round.
        part_of: The series whose artifacts contain these, for adversaries that read those.
        withheld: Shadow clients whose artifact the defense would have withheld.
        name: The name of the series, if it is not its kind.
    """

    simulator: C
    level: str
    wire: Mapping[str, Artifact]
    clients: Sequence[str]
    received_model: Mapping[str, ModelState] = field(default_factory=dict)
    receiver: Mapping[str, str] = field(default_factory=dict)
    receivers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    number: int = 0
    history: tuple[EarlierRound, ...] = ()
    earlier: Mapping[str, Artifact] = field(default_factory=dict)
    needs: frozenset[Capability] = frozenset()
    expensive: bool = False
    trained: bool = False
    kept: bool = False
    reaches_all: bool = False
    part_of: str = ""
    withheld: frozenset[str] = frozenset()
    name: str = ""
    _at: "Cache[ArtifactSeries[Simulator]]" = field(default_factory=Cache, init=False)

    @property
    def kind(self) -> str:
        """The kind of the artifacts."""
        return self.simulator.kind

    @property
    def called(self) -> str:
        """The name of the series: its kind, unless `name` is set."""
        return self.name or self.kind

    @property
    def is_global(self) -> bool:
        """Whether one artifact belongs to all clients, so that other clients' artifacts cannot serve as controls."""
        return self.level == "group"

    @property
    def needs_all_clients(self) -> bool:
        """Whether artifacts can only be simulated for all clients together, so that there are none of few images."""
        return self.simulator.needs_all_clients

    @property
    def own_models(self) -> bool:
        """Whether clients received different models, so that computations cannot be shared between them."""
        return len({id(model) for model in self.received_model.values()}) > 1

    @property
    def simulated_history(self) -> tuple[EarlierRound, ...]:
        """The earlier rounds whose artifacts are simulated: all of them; the first and a middle one if that is expensive."""
        whole_rounds = tuple(earlier for earlier in self.history if earlier.whole)
        if not self.expensive or len(whole_rounds) <= EXPENSIVE_ROUNDS:
            return whole_rounds
        return tuple(whole_rounds[len(whole_rounds) * i // EXPENSIVE_ROUNDS] for i in range(EXPENSIVE_ROUNDS))

    def refused(self, threat: ThreatModel) -> str | None:
        """Why this adversary cannot observe the artifacts; None if it can."""
        if self.part_of and Capability.HAS_UPDATES in threat.capabilities:
            return f"the {threat.role} reads them within each client's {self.part_of.replace('_', ' ')}"
        missing = sorted(self.needs - threat.capabilities)
        if not missing:
            return None
        wanted = " and ".join(capability.in_words for capability in missing)
        return f"the {threat.role.replace('_', ' ')} is no adversary that {wanted}"

    def at(self, layer: str) -> "ArtifactSeries[Simulator]":
        """The same series at another layer, without recorded artifacts; cached by layer."""
        return self._at.get(
            layer,
            lambda: ArtifactSeries(
                self.simulator.at(layer),
                "client",
                {},
                self.clients,
                self.received_model,
                self.receiver,
                needs=self.needs,
                withheld=self.withheld,
            ),
        )
