"""An adversary's view of each round of a federation: the observed client's artifact, and those of other clients.

Simulated artifacts of controls and artifacts with planted leaks are computed when they are read.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.mixture import Sent, read
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.utils.cache import Cache

T = TypeVar("T")


@dataclass(eq=False)
class Deferred:
    """An artifact that is computed when it is first read, once for all readers."""

    compute: Callable[[], Sent]
    _cache: Cache[Sent] = field(default_factory=Cache, init=False)

    @property
    def sent(self) -> Sent:
        """The artifact, or a mixture of two."""
        return self._cache.get("", self.compute)


@dataclass(frozen=True, eq=False)
class Earlier:
    """The artifact of one client, or of a control in its place, in an earlier round.

    Attributes:
        shared: The artifact.
        received_model: The model that it received in that round, if the artifact depends on it.
    """

    shared: Deferred
    received_model: ModelState | None


@dataclass(eq=False)
class ViewUse:
    """The part of its view that an attack has read.

    Attributes:
        rounds: Numbers of the rounds.
        others: Maximum number of other clients whose artifacts were read for one observation.
    """

    rounds: set[int] = field(default_factory=set)
    others: int = 0


@dataclass(frozen=True, eq=False)
class RecordedRound:
    """The recorded artifacts of one kind in one round, as an adversary sees them.

    Attributes:
        number: The round, from 0.
        simulator: Simulates artifacts of this round.
        artifacts: By pseudonym, each client's artifact, without its sender's name.
        received_models: By pseudonym, the model that the client received in this round; empty if artifacts do not depend on
            it.
        whole: Whether artifacts and received models have all their tensors; otherwise only the small ones.
    """

    number: int
    simulator: Simulator
    artifacts: Mapping[str, Artifact]
    received_models: Mapping[str, ModelState]
    whole: bool = True


@dataclass(frozen=True, eq=False)
class Selected(Mapping[str, T]):
    """The entries of a mapping with these names, which are read when they are asked for."""

    source: Mapping[str, T]
    names: Sequence[str]

    def __getitem__(self, name: str) -> T:
        if name not in self.names:
            raise KeyError(name)
        return self.source[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class SeenRound:
    """An adversary's view of one round, for one observation.

    Attributes:
        number: The round, from 0.
        simulator: Simulates artifacts of this round.
        received_model: The model that the observed client received in this round; None if artifacts do not depend on it.
        received_models: By pseudonym, the models that the other clients received.
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
        """The observed client's artifact of this round; a mixture is computed each time."""
        return read(self.sent)

    @cached_property
    def others(self) -> Mapping[str, Artifact]:
        """By pseudonym, the artifacts of the other clients in this round.

        They include neither the attacked client's artifact nor that of the observed artifact's sender.
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
        view_read: ViewUse,
    ) -> "SeenRound":
        """The view of one round, for one observation.

        Args:
            recorded: The round.
            shared: The observed artifact.
            received_model: The model that its sender received.
            known: Pseudonyms of the clients whose artifacts the adversary has; None for all.
            left_out: Pseudonyms of the attacked client and of the artifact's sender.
            view_read: Collects the rounds and clients that the attack reads.
        """
        seen = recorded.artifacts if known is None else known & recorded.artifacts.keys()
        others = Selected(recorded.artifacts, [name for name in sorted(seen) if name not in left_out])
        models = Selected(recorded.received_models, [name for name in others if name in recorded.received_models])
        return cls(
            recorded.number,
            recorded.simulator,
            received_model,
            models,
            recorded.whole,
            shared,
            others,
            view_read,
        )


def spaced(view: Sequence[SeenRound], max_rounds: int) -> tuple[SeenRound, ...]:
    """At most `max_rounds` evenly spaced rounds of a view, including the last one."""
    count = min(max_rounds, len(view))
    return tuple(view[len(view) * (turn + 1) // count - 1] for turn in range(count))
