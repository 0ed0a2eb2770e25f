"""Simulates artifacts for the evaluator; expensive ones are cached for all evaluations."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from time import thread_time
from typing import Any
from weakref import ref
from zlib import crc32

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.simulator import ClientImages, ClientSample, Simulator
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator

CACHED_BYTES, QUICK_BYTES = 2**28, 2**26  # of artifacts that are simulated, by default
_FORGET_AT = 256  # artifacts, used or not, from which those that nobody uses are forgotten
QUICK_S = 0.1  # seconds of a core in which an artifact is quick to simulate


@dataclass(frozen=True)
class _Referenced:
    """An artifact without references that keep its tensors in memory, and whether simulating it takes long."""

    kind: type[Artifact]
    facts: Mapping[str, Any]
    tensors: Mapping[str, "ref[Tensor]"]
    is_slow: bool

    @classmethod
    def of(cls, artifact: Artifact, is_slow: bool) -> "_Referenced":
        tensors = {name: ref(tensor) for name, tensor in artifact.tensors().items()}
        return cls(type(artifact), artifact.facts(), tensors, is_slow)

    def artifact(self) -> Artifact | None:
        """The artifact, of the same tensors; None if one of them is in use no more."""
        tensors = {name: tensor for name, reference in self.tensors.items() if (tensor := reference()) is not None}
        return self.kind.build(tensors, self.facts) if len(tensors) == len(self.tensors) else None


@dataclass(eq=False)
class CachedSimulator:
    """Caches expensive artifacts, large ones in files.

    An artifact that somebody uses is never simulated twice. The latest ones that nobody uses stay, too, fewer of those that
    are quick to simulate; another one is simulated again, with the same values.

    Attributes:
        seed: Seed of expensive artifacts, whose random numbers depend on their images only.
        max_bytes: Largest size of the latest artifacts, used or not.
        max_quick_bytes: The same, of those that are quick to simulate.
    """

    seed: int
    max_bytes: int = CACHED_BYTES
    max_quick_bytes: int = QUICK_BYTES
    _slow: Cache[Artifact] = field(init=False)
    _quick: Cache[Artifact] = field(init=False)
    _used: dict[Hashable, _Referenced] = field(default_factory=dict, init=False)
    _forget_at: int = field(default=_FORGET_AT, init=False)

    def __post_init__(self) -> None:
        self._slow, self._quick = (
            Cache(max_bytes=limit, nbytes=lambda artifact: artifact.nbytes)
            for limit in (self.max_bytes, self.max_quick_bytes)
        )

    def _cached(self, key: Hashable, simulate: Callable[[], Artifact]) -> Artifact:
        """The artifact of this key, simulated if nobody uses it."""

        def existing_or_new() -> Artifact:
            referenced = self._used.get(key)
            artifact = None if referenced is None else referenced.artifact()
            if referenced is None or artifact is None:
                start = thread_time()
                artifact = simulate().in_file()
                referenced = _Referenced.of(artifact, thread_time() - start > QUICK_S)
                self._forget_unused()
                self._used[key] = referenced
            if referenced.is_slow:
                self._slow.get(key, lambda: artifact)
            return artifact

        return self._quick.get(key, existing_or_new)

    def _forget_unused(self) -> None:
        """Forgets artifacts that nobody uses, now and then, as each has a reference for every tensor."""
        if len(self._used) >= self._forget_at:
            for key, referenced in list(self._used.items()):
                if referenced.artifact() is None:
                    self._used.pop(key, None)
            self._forget_at = max(_FORGET_AT, 2 * len(self._used))

    def simulate(
        self, series: ArtifactSeries[Simulator], client: str, sample: ClientSample, rng: torch.Generator
    ) -> Artifact:
        """The defended artifact of the client of this name, with the images of `sample`."""
        if not series.expensive:
            return series.simulator.simulate(sample, rng)
        key = (client, tuple(sample.index.tolist()), sample.granularity)
        client_rng = generator(self.seed, 12, crc32(repr(key).encode()))
        return self._cached((series.called, *key), lambda: series.simulator.simulate(sample, client_rng))

    def simulate_earlier(
        self,
        series: ArtifactSeries[Simulator],
        earlier: EarlierRound,
        client: str,
        sample: ClientSample,
    ) -> Artifact:
        """As `simulate`, in an earlier round; its random numbers depend on the images and the round only."""
        key = (client, tuple(sample.index.tolist()), sample.granularity, earlier.number)
        client_rng = generator(self.seed, 61, crc32(repr(key).encode()))

        def simulated() -> Artifact:
            return earlier.simulator.simulate(sample, client_rng)

        return self._cached((series.called, *key), simulated) if series.expensive else simulated().in_file()

    def simulate_jointly(
        self, series: ArtifactSeries[Simulator], parties: Mapping[str, ClientImages]
    ) -> dict[str, Artifact]:
        """By client, the defended artifact in a federation of these parties with all their images."""
        samples = [ClientSample.all_of(party) for party in parties.values()]
        artifacts = series.simulator.simulate_jointly(samples, generator(self.seed, 22))
        return dict(zip(parties, artifacts, strict=True))
