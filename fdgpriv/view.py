"""What an adversary sees of each round of a federation: the observed client's artifact, and those of the other clients.

Artifacts that are simulated for a control, or that hide a planted leak, are made when they are read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.mixture import Sent, read
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.utils.cache import Cache


@dataclass(eq=False)
class Deferred:
    """An artifact that is made when it is first read, once for all readers."""

    make: Callable[[], Sent]
    _made: Cache[Sent] = field(default_factory=Cache, init=False)

    @property
    def sent(self) -> Sent:
        """The artifact, or a mixture of two."""
        return self._made.get("", self.make)


@dataclass(frozen=True, eq=False)
class Earlier:
    """What one client, or who stands in its place, shared in an earlier round.

    Attributes:
        shared: The artifact.
        received_model: The model that it received in that round, if the artifact depends on it.
    """

    shared: Deferred
    received_model: ModelState | None


@dataclass(eq=False)
class ViewUse:
    """Which part of its view an attack has read.

    Attributes:
        rounds: Numbers of the rounds.
        others: The most clients, besides the observed one, whose artifacts it has read for one observation.
    """

    rounds: set[int] = field(default_factory=set)
    others: int = 0


@dataclass(frozen=True, eq=False)
class RecordedRound:
    """The recorded artifacts of one kind in one round, as an adversary sees them.

    Attributes:
        number: Of the round, from 0.
        simulator: Makes artifacts of this round.
        artifacts: By pseudonym, each client's artifact, without its sender's name.
        received_models: By pseudonym, the model that the client received in this round; empty where artifacts do not
            depend on it.
        whole: Whether artifacts and received models have all their tensors; otherwise only the small ones.
    """

    number: int
    simulator: Simulator
    artifacts: Mapping[str, Artifact]
    received_models: Mapping[str, ModelState]
    whole: bool = True


@dataclass(frozen=True, eq=False)
class SeenRound:
    """What an adversary sees of one round beside one observed client.

    Attributes:
        number: Of the round, from 0.
        simulator: Makes artifacts of this round.
        received_model: The model that the observed client received in this round; None where artifacts do not depend
            on it.
        received_models: By pseudonym, the same of the other clients.
        whole: Whether artifacts and received models have all their tensors; otherwise only the small ones.
    """

    number: int
    simulator: Simulator
    received_model: ModelState | None
    received_models: Mapping[str, ModelState]
    whole: bool
    _shared: Deferred
    _others: Mapping[str, Artifact]
    _read: ViewUse

    @property
    def sent(self) -> Sent:
        """The observed client's artifact of this round, or a mixture of two."""
        self._read.rounds.add(self.number)
        return self._shared.sent

    @property
    def artifact(self) -> Artifact:
        """The observed client's artifact of this round; a mixture is computed anew each time."""
        return read(self.sent)

    @cached_property
    def others(self) -> Mapping[str, Artifact]:
        """By pseudonym, the artifacts of the other clients in this round.

        Neither the client that is asked about is among them, nor the one whose artifact stands in its place.
        """
        self._read.rounds.add(self.number)
        self._read.others = max(self._read.others, len(self._others))
        return self._others

    @classmethod
    def of(
        cls,
        recorded: RecordedRound,
        shared: Deferred,
        received_model: ModelState | None,
        known: frozenset[str] | None,
        left_out: Collection[str],
        read_so_far: ViewUse,
    ) -> "SeenRound":
        """One round beside one observed client.

        Args:
            recorded: The round.
            shared: The observed artifact.
            received_model: That its sender received.
            known: Pseudonyms of the clients whose artifacts the adversary has; None for all.
            left_out: Pseudonyms of the client that is asked about and of the artifact's sender.
            read_so_far: What the attack has read; this round adds to it.
        """
        seen = recorded.artifacts if known is None else known & recorded.artifacts.keys()
        others = {name: recorded.artifacts[name] for name in sorted(seen) if name not in left_out}
        models = {name: recorded.received_models[name] for name in others if name in recorded.received_models}
        return cls(
            recorded.number,
            recorded.simulator,
            received_model,
            models,
            recorded.whole,
            shared,
            others,
            read_so_far,
        )


def spaced(view: Sequence[SeenRound], most: int) -> tuple[SeenRound, ...]:
    """At most so many rounds of a view, evenly spaced, the last one among them."""
    count = min(most, len(view))
    return tuple(view[len(view) * (turn + 1) // count - 1] for turn in range(count))
