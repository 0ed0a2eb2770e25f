"""Makes artifacts for the evaluator; where making one takes a training, each is made once for all examinations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

import torch
from torch import Tensor

from fdgpriv.artifact import Artifact
from fdgpriv.federation import generator
from fdgpriv.once import Once

from .subject import Craft, Holding, Subject


@dataclass(eq=False)
class Maker:
    """Remembers what was costly.

    Attributes:
        seed: Of the randomness of costly artifacts, which hangs on the images they are made of and on nothing else.
    """

    seed: int
    _made: Once[Artifact] = field(default_factory=Once)

    def make(
        self, subject: Subject[Craft], whose: str, held: Holding, index: Tensor, rng: torch.Generator, behind: str
    ) -> Artifact:
        """The defended artifact of the images at `index` (m,) of what `whose` holds."""
        if not subject.costly:
            return subject.craft.make(held, index, rng, behind=behind)
        what = (whose, tuple(index.tolist()), behind)
        own = generator(self.seed, 12, crc32(repr(what).encode()))
        return self._made.get((subject.called, *what), lambda: subject.craft.make(held, index, own, behind=behind))

    def make_all(self, subject: Subject[Craft], parties: Mapping[str, Holding]) -> dict[str, Artifact]:
        """By client, the defended artifacts of a federation of these parties with all their images."""
        held = [(own, torch.arange(len(own.images))) for own in parties.values()]
        return dict(zip(parties, subject.craft.make_all(held, generator(self.seed, 22)), strict=True))
