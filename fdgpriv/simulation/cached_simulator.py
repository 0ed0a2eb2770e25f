"""Simulates artifacts for the evaluator; expensive ones are cached for all evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

import torch

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.simulator import ClientImages, ClientSample, Simulator
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator


@dataclass(eq=False)
class CachedSimulator:
    """Caches expensive artifacts, large ones in files.

    Attributes:
        seed: Seed of expensive artifacts, whose random numbers depend on their images only.
    """

    seed: int
    _artifacts: Cache[Artifact] = field(default_factory=Cache)

    def simulate(
        self, series: ArtifactSeries[Simulator], client: str, sample: ClientSample, rng: torch.Generator
    ) -> Artifact:
        """The defended artifact of the client of this name, with the images of `sample`."""
        if not series.expensive:
            return series.simulator.simulate(sample, rng)
        key = (client, tuple(sample.index.tolist()), sample.granularity)
        client_rng = generator(self.seed, 12, crc32(repr(key).encode()))
        return self._artifacts.get(
            (series.called, *key), lambda: series.simulator.simulate(sample, client_rng).in_file()
        )

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
            return earlier.simulator.simulate(sample, client_rng).in_file()

        return self._artifacts.get((series.called, *key), simulated) if series.expensive else simulated()

    def simulate_jointly(
        self, series: ArtifactSeries[Simulator], parties: Mapping[str, ClientImages]
    ) -> dict[str, Artifact]:
        """By client, the defended artifact in a federation of these parties with all their images."""
        samples = [ClientSample.all_of(party) for party in parties.values()]
        artifacts = series.simulator.simulate_jointly(samples, generator(self.seed, 22))
        return dict(zip(parties, artifacts, strict=True))
