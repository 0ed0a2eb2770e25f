"""Simulates artifacts for the evaluator; expensive ones are cached for all evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.simulator import ClientImages, Simulator
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator


@dataclass(eq=False)
class CachedSimulator:
    """Caches expensive artifacts, large ones in files.

    Attributes:
        seed: Of the randomness of expensive artifacts, which depends on their images only.
    """

    seed: int
    _made: Cache[Artifact] = field(default_factory=Cache)

    def simulate(
        self,
        series: ArtifactSeries[Simulator],
        whose: str,
        party: ClientImages,
        index: Tensor,
        rng: torch.Generator,
        granularity: str,
    ) -> Artifact:
        """The defended artifact of the images at `index` (m,) of client `whose`."""
        if not series.expensive:
            return series.simulator.simulate(party, index, rng, granularity=granularity)
        key = (whose, tuple(index.tolist()), granularity)
        client_rng = generator(self.seed, 12, crc32(repr(key).encode()))
        return self._made.get(
            (series.called, *key),
            lambda: series.simulator.simulate(party, index, client_rng, granularity=granularity).in_file(),
        )

    def simulate_earlier(
        self,
        series: ArtifactSeries[Simulator],
        earlier: EarlierRound,
        whose: str,
        party: ClientImages,
        index: Tensor,
        granularity: str,
    ) -> Artifact:
        """The same of an earlier round; its randomness depends on the images and the round only."""
        key = (whose, tuple(index.tolist()), granularity, earlier.number)
        client_rng = generator(self.seed, 61, crc32(repr(key).encode()))

        def made() -> Artifact:
            return earlier.simulator.simulate(party, index, client_rng, granularity=granularity).in_file()

        return self._made.get((series.called, *key), made) if series.expensive else made()

    def simulate_jointly(
        self, series: ArtifactSeries[Simulator], parties: Mapping[str, ClientImages]
    ) -> dict[str, Artifact]:
        """By client, the defended artifacts of a federation of these parties with all their images."""
        with_all_images = [(party, torch.arange(len(party.images))) for party in parties.values()]
        artifacts = series.simulator.simulate_jointly(with_all_images, generator(self.seed, 22))
        return dict(zip(parties, artifacts, strict=True))
