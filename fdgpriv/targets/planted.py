"""Plants a leak: mixes the artifact of few images into the artifact of a whole client."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.targets.deferred import Deferred, Sent, identity, read
from fdgpriv.targets.simulator import HeldImages, Simulator
from fdgpriv.targets.stored import Store
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator

_COVERS = 6  # simulated whole clients for each set of images
_EXPENSIVE_COVERS = 3  # the same where simulating one is expensive


@dataclass(frozen=True, eq=False)
class Mixture(Deferred):
    """(1 - weight) times `base` plus weight times `leak`; counters are those of `base`.

    Hundreds of mixed models would fill the memory, so that it holds the two artifacts only.
    """

    base: Sent
    leak: Sent
    weight: float

    @property
    def level(self) -> str:
        return self.base.level

    def artifact(self) -> Artifact:
        base = read(self.base)
        if self.weight == 0:
            return base
        leak = read(self.leak).tensors()
        return type(base).build({n: self._mixed(one, leak[n]) for n, one in base.tensors().items()}, base.facts())

    @property
    def identity(self) -> Hashable:
        return identity(self.base if self.weight == 0 else self.leak) if self.weight in (0, 1) else id(self)

    def _mixed(self, base: Tensor, leak: Tensor) -> Tensor:
        if not base.is_floating_point():
            return base
        return leak if self.weight == 1 else (1 - self.weight) * base + self.weight * leak


@dataclass(frozen=True, eq=False)
class Plant:
    """Hides simulated artifacts in those of whole clients of the same images, as the evaluated ones are hidden.

    Attributes:
        weight: Of the artifact that is hidden, in [0, 1].
        typical: Number of images of a whole client.
        expensive: Whether simulating an artifact is expensive.
        seed: Of the choice among the whole clients, and of these.
        store: Keeps both.
        leaks: The artifacts that are hidden, by what they are made from; plants of other weights share them.
        covers: By images and received model, artifacts of simulated whole clients; shared likewise.
    """

    weight: float
    typical: int
    expensive: bool
    seed: int
    store: Store = field(default_factory=Store)
    leaks: Cache[Sent] = field(default_factory=Cache)
    covers: Cache[list[Sent]] = field(default_factory=Cache)

    def make(self, simulator: Simulator, held: HeldImages, index: Tensor, rng: torch.Generator) -> Artifact:
        """As `simulator.make`, mixed with the artifact of a whole client with some of the images of `held`."""
        whose = (id(held.images), id(held.received_model))
        key = (*whose, tuple(index.tolist()), bytes(rng.get_state().numpy()))
        leak = self.leaks.get(key, lambda: self.store.keep(simulator.make(held, index, rng)))
        covers = self.covers.get(whose, lambda: self._whole_clients(simulator, held))
        draw = generator(self.seed, 49, *index.tolist())
        return Mixture(covers[int(torch.randint(len(covers), (), generator=draw))], leak, self.weight).artifact()

    def _whole_clients(self, simulator: Simulator, held: HeldImages) -> list[Sent]:
        rng, n = generator(self.seed, 47), len(held.images)
        count = _EXPENSIVE_COVERS if self.expensive else _COVERS
        some = [torch.randperm(n, generator=rng)[: self.typical] for _ in range(count)]
        return [self.store.keep(simulator.make(held, index, rng)) for index in some]
