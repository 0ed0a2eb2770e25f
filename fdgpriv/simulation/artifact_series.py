"""The recorded artifacts of one kind, which only the evaluator holds, and the simulator that makes more of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.threat import Capability, ThreatModel
from fdgpriv.utils.cache import Cache

EXPENSIVE_ROUNDS = 2  # earlier rounds of which artifacts are simulated where simulating one is expensive

C = TypeVar("C", bound=Simulator)


@dataclass(frozen=True, eq=False)
class EarlierRound:
    """Recorded artifacts of one kind in an earlier round than that of its series.

    Attributes:
        number: Of the round, from 0.
        simulator: Makes more of them.
        wire: By client, its artifact; for a group's artifact, the one that applies to the client.
        received_model: By client or shadow client, the model it received in that round, where artifacts depend on it.
        whole: Whether these have all their tensors; otherwise only the small ones, and none can be simulated.
    """

    number: int
    simulator: Simulator
    wire: Mapping[str, Artifact]
    received_model: Mapping[str, ModelState] = field(default_factory=dict)
    whole: bool = True

    def of_clients(self, received_model: Mapping[str, ModelState]) -> "EarlierRound":
        """The round for clients that are all simulated, with the models that they receive."""
        return replace(self, wire={}, received_model=received_model)


@dataclass(frozen=True, eq=False)
class ArtifactSeries(Generic[C]):
    """Artifacts of one kind in one trained federation.

    Attributes:
        simulator: Makes more of them.
        level: Of the artifact on the wire: image, client or group.
        wire: By client, its last recorded artifact; for a group's artifact, the one that applies to the client. Empty
            where only artifacts of single images were shared.
        clients: All that shared one.
        received_model: By client or shadow client, the model it received in that round, where artifacts depend on it.
        receiver: By client, another client that received its artifact.
        receivers: By client, the other clients that received its artifact.
        number: The round of these artifacts, from 0.
        history: The earlier recorded rounds, the oldest first.
        earlier: By client, its artifact in the first recorded round, if that is another.
        needs: Capabilities that an adversary needs to observe them.
        expensive: Whether simulating or evaluating one is expensive, so that each control has fewer.
        trained: Whether a client trains them, from a model that has been trained on its images before.
        reaches_all: Whether every client receives every other client's in each round.
        part_of: The series whose artifacts contain these, where the server reads those.
        withheld: Shadow clients that the defense would have let share none.
        name: Its name where that is not its kind.
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
    reaches_all: bool = False
    part_of: str = ""
    withheld: frozenset[str] = frozenset()
    name: str = ""
    _at: "Cache[ArtifactSeries[Simulator]]" = field(default_factory=Cache, init=False)

    @property
    def kind(self) -> str:
        """Of the artifacts."""
        return self.simulator.kind

    @property
    def called(self) -> str:
        """Its name: its kind, or another where the run has several series of that kind."""
        return self.name or self.kind

    @property
    def is_global(self) -> bool:
        """Whether one artifact belongs to all clients, so that other clients' artifacts cannot serve as controls."""
        return self.level == "group"

    @property
    def needs_all_clients(self) -> bool:
        """Whether artifacts can only be made jointly for all clients, so that none of a few images exists."""
        return self.simulator.needs_all_clients

    @property
    def own_models(self) -> bool:
        """Whether clients received models of their own, so that computations cannot be shared between them."""
        return len({id(model) for model in self.received_model.values()}) > 1

    @property
    def simulated_history(self) -> tuple[EarlierRound, ...]:
        """The earlier rounds of which artifacts are simulated: all; the first and a middle one where that is expensive."""
        whole_rounds = tuple(earlier for earlier in self.history if earlier.whole)
        if not self.expensive or len(whole_rounds) <= EXPENSIVE_ROUNDS:
            return whole_rounds
        return tuple(whole_rounds[len(whole_rounds) * i // EXPENSIVE_ROUNDS] for i in range(EXPENSIVE_ROUNDS))

    def refused(self, threat: ThreatModel) -> str | None:
        """Why this adversary cannot observe them, or None."""
        if self.part_of and Capability.HAS_UPDATES in threat.capabilities:
            return f"the {threat.role} reads them within each client's {self.part_of.replace('_', ' ')}"
        missing = sorted(self.needs - threat.capabilities)
        return f"the {threat.role} is not granted {', '.join(missing)}" if missing else None

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
