"""Simulates artifacts for the evaluator; expensive ones are cached for all evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.targets.simulator import HeldImages, Simulator
from fdgpriv.targets.target import EarlierRound, Target
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

    def make(
        self,
        target: Target[Simulator],
        whose: str,
        held: HeldImages,
        index: Tensor,
        rng: torch.Generator,
        granularity: str,
    ) -> Artifact:
        """The defended artifact of the images at `index` (m,) of client `whose`."""
        if not target.expensive:
            return target.simulator.make(held, index, rng, granularity=granularity)
        key = (whose, tuple(index.tolist()), granularity)
        own = generator(self.seed, 12, crc32(repr(key).encode()))
        return self._made.get(
            (target.called, *key),
            lambda: target.simulator.make(held, index, own, granularity=granularity).in_file(),
        )

    def make_earlier(
        self,
        target: Target[Simulator],
        earlier: EarlierRound,
        whose: str,
        held: HeldImages,
        index: Tensor,
        granularity: str,
    ) -> Artifact:
        """The same of an earlier round; its randomness depends on the images and the round only."""
        key = (whose, tuple(index.tolist()), granularity, earlier.number)
        own = generator(self.seed, 61, crc32(repr(key).encode()))

        def made() -> Artifact:
            return earlier.simulator.make(held, index, own, granularity=granularity).in_file()

        return self._made.get((target.called, *key), made) if target.expensive else made()

    def make_all(self, target: Target[Simulator], parties: Mapping[str, HeldImages]) -> dict[str, Artifact]:
        """By client, the defended artifacts of a federation of these parties with all their images."""
        held = [(own, torch.arange(len(own.images))) for own in parties.values()]
        return dict(zip(parties, target.simulator.make_all(held, generator(self.seed, 22)), strict=True))
