"""Auxiliary data of each adversary: images to simulate with, and images held back to calibrate the weight of artifacts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fdgpriv.data.dataset import ClientData, Domain
from fdgpriv.data.pixels import joined
from fdgpriv.federation.partition import Population
from fdgpriv.threat import Auxiliary
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator

HELD_BACK = 0.25  # of an adversary's public images


@dataclass(frozen=True, eq=False)
class AuxiliaryData:
    """The auxiliary data of the adversaries of one population.

    Attributes:
        population: The ground truth.
        seed: Of the order of the images of the domain that no client has.
    """

    population: Population
    seed: int
    _parts: Cache[tuple[Domain, Domain]] = field(default_factory=Cache, init=False)

    def simulation_images(self, auxiliary: Auxiliary, holder: str, leaked: Mapping[str, Tensor]) -> tuple[Domain, ...]:
        """The images by domain that an adversary trains and simulates with.

        Args:
            auxiliary: The data that its threat model grants.
            holder: The adversary's domain, if it has one.
            leaked: By client, indices of the images that leaked to it.
        """
        public = tuple(self._split(domain)[0] for domain in self.public(auxiliary, holder))
        return self._with_leaked(public, leaked) if auxiliary is Auxiliary.LEAKED else public

    def held_back(self, auxiliary: Auxiliary, holder: str) -> tuple[Domain, ...]:
        """The images by domain that it calibrates with."""
        return tuple(self._split(domain)[1] for domain in self.public(auxiliary, holder))

    @cached_property
    def _unseen_domain(self) -> Domain:
        """Images of the domain that no client has, in random order."""
        domain = self.population.other_domain
        return domain.take(torch.randperm(len(domain), generator=generator(self.seed, 31)))

    def public(self, auxiliary: Auxiliary, holder: str) -> Sequence[Domain]:
        """All public images that the threat model grants, by domain."""
        public = self.population.auxiliary
        if auxiliary is Auxiliary.NONE:
            return ()
        if auxiliary is Auxiliary.OTHER_DOMAIN:
            return (self._unseen_domain,)
        return (public[holder],) if auxiliary is Auxiliary.OWN_DOMAIN else tuple(public.values())

    def _split(self, domain: Domain) -> tuple[Domain, Domain]:
        """The images to simulate with, more than there are classes, and those held back; the same tensors each time."""
        back = min(int(HELD_BACK * len(domain)), len(domain) - len(self.population.dataset.classes) - 1)
        cut = len(domain) - max(0, back)
        return self._parts.get(id(domain), lambda: (domain.part(0, cut), domain.part(cut, len(domain))))

    def _with_leaked(self, public: Sequence[Domain], leaked: Mapping[str, Tensor]) -> tuple[Domain, ...]:
        """The public images and the leaked ones, by domain."""
        domains = []
        for d, domain in enumerate(public):
            pixels, labels = [domain.pixels], [domain.labels]
            for name, index in leaked.items():
                data = self.population.data(name)
                in_domain = index[self.population.domain_of[name][index] == d]
                pixels.append(data.pixels[in_domain])
                labels.append(data.labels[in_domain])
            domains.append(Domain(domain.name, joined(pixels), torch.cat(labels)))
        return tuple(domains)


def leaked_count(share: float, data: ClientData) -> int:
    """Number of a client's images that leak, at this share."""
    return int(share * len(data))
