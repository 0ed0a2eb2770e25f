"""Simulates artifacts with a planted leak, from which an attack learns against planted leaks."""

from dataclasses import dataclass, field

import torch

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.simulation.mixture import Mixture
from fdgpriv.simulation.simulator import ClientImages, ClientSample, Simulator
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator

_COVERS = 6  # simulated whole clients for each set of images
_EXPENSIVE_COVERS = 3  # the same, if simulating one is expensive


@dataclass(frozen=True, eq=False)
class Plant:
    """Plants simulated artifacts in those of whole clients with the same images, as in the evaluated artifacts.

    Attributes:
        weight: Weight of the planted artifact, in [0, 1].
        typical: Number of images of a whole client.
        expensive: Whether simulating an artifact is expensive.
        seed: Seed of the whole clients and of the choice among them.
        leaks: Cache of planted artifacts; plants of other weights share it.
        covers: By images, received model and simulator, artifacts of simulated whole clients; shared, too.
    """

    weight: float
    typical: int
    expensive: bool
    seed: int
    leaks: Cache[Artifact] = field(default_factory=Cache)
    covers: Cache[list[Artifact]] = field(default_factory=Cache)

    def simulate(self, simulator: Simulator, sample: ClientSample, rng: torch.Generator) -> Artifact:
        """As `simulator.simulate`, mixed with the artifact of a whole client with some of the images of the party."""
        party = sample.party
        covers_key = (id(party.images), id(party.received_model), id(simulator))
        leak_key = (*covers_key, tuple(sample.index.tolist()), bytes(rng.get_state().numpy()))
        leak = self.leaks.get(leak_key, lambda: simulator.simulate(sample, rng).in_file())
        covers = self.covers.get(covers_key, lambda: self._whole_clients(simulator, party))
        draw = generator(self.seed, 49, *sample.index.tolist())
        return Mixture(covers[int(torch.randint(len(covers), (), generator=draw))], leak, self.weight).artifact()

    def _whole_clients(self, simulator: Simulator, party: ClientImages) -> list[Artifact]:
        """Artifacts of whole clients, each with random images of the party."""
        rng, n = generator(self.seed, 47), len(party.images)
        count = _EXPENSIVE_COVERS if self.expensive else _COVERS
        subsets = [torch.randperm(n, generator=rng)[: self.typical] for _ in range(count)]
        return [simulator.simulate(ClientSample(party, index), rng).in_file() for index in subsets]
