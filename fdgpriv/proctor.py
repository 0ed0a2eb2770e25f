"""The evaluator of one trained federation: gives each adversary of a threat model its questions and what it may hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.artifact import StyleDraft, StyleStatistics
from fdgpriv.evidence import Evidence
from fdgpriv.exam import Item, Sitting, View, draft_like
from fdgpriv.federation import Domain, Federation, generator
from fdgpriv.partition import Population
from fdgpriv.questions import ARTIFACTS_PER_CLIENT, Questions
from fdgpriv.roles import Defense, Method
from fdgpriv.threat import Auxiliary, ThreatModel
from fdgpriv.transcript import Transcript

LEAKED_SHARE = 0.5
PUBLIC_ARTIFACTS = 20  # per domain, to learn the public distribution from


@dataclass(eq=False)
class Proctor:
    """Lays out examinations of one run's style statistics.

    Attributes:
        population: All that the evaluator knows.
        method, federation, defense: As trained.
        transcript: As recorded.
        seed: Of all draws here.
        per_client: By number of images behind an artifact, how many such artifacts of each client.
    """

    population: Population
    method: Method
    federation: Federation
    defense: Defense
    transcript: Transcript
    seed: int
    per_client: Mapping[int, int] = field(default_factory=lambda: ARTIFACTS_PER_CLIENT)
    evidence: Evidence | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.evidence = Evidence.of(self.transcript, self.method, self.federation, self.seed)

    @property
    def shares_styles(self) -> bool:
        """Whether any client's style statistics are on record, with the model they were taken under."""
        return self.evidence is not None

    @property
    def _shared(self) -> Evidence:
        if self.evidence is None:
            raise ValueError(f"{self.method.name()} shared no style statistics: there is nothing to examine")
        return self.evidence

    @property
    def template(self) -> StyleStatistics:
        """One artifact as it is on the wire."""
        return self._shared.template

    def layers(self) -> tuple[str, ...]:
        """The stages at which styles could be taken."""
        return self._shared.layers()

    def too_little(self, threat: ThreatModel) -> str | None:
        """Why there is too little here to examine this adversary on; None where there is enough.

        It wants a second client to tell the first one from, and in each domain that anything is learned from more public
        images than there are classes.
        """
        if len(self._names()) < 2:
            return "only one client shared a style, so there is nobody to tell it from"
        domains = list(self.population.auxiliary.values())
        if threat.auxiliary is Auxiliary.OTHER_DOMAIN:
            domains.append(self.population.target)
        for domain in domains:
            if len(domain) <= self.federation.classes:
                return (
                    f"to practise on, an adversary wants more public images of {domain.name} than there are classes "
                    f"({self.federation.classes}); there are {len(domain)}"
                )
        return None

    def sittings(
        self,
        threat: ThreatModel,
        sizes: Sequence[int | None],
        *,
        reconstruction: bool,
        layer: str | None = None,
    ) -> list[Sitting]:
        """The adversaries of this threat model, each with its items: one sitting for each distinct auxiliary data.

        Args:
            threat: Who is examined.
            sizes: Numbers of images behind the artifacts; None for the whole client.
            reconstruction: Whether bounds for images (nearest_own, autoencoder) are wanted.
            layer: Take styles at this stage instead of where the method does; nothing on the wire is used then.
        """
        rng = generator(self.seed, 5)
        template = self.template
        if layer is not None:
            template = StyleStatistics.build(template.tensors(), {**template.facts(), "at": layer})
        leaked = self._leak(rng) if threat.auxiliary is Auxiliary.LEAKED else {}
        questions = Questions(
            population=self.population,
            styles={
                name: self._shared.styles(self.population.data(name).images, template.at) for name in self._names()
            },
            maps={name: self._shared.maps(self.population.data(name).images, template.at) for name in self._names()},
            template=template,
            wire=self._shared.wire if layer is None and template.level == "client" else {},
            share=self._share,
            rng=rng,
        )
        groups = questions.groups(sizes, self.per_client, leaked)
        public = {size: self._public(template, size, rng) for size in sizes}
        by_holder: dict[str, list[Item]] = {}
        for group in groups:
            if (holder := self._holder(threat, group.client)) is not None:
                item = questions.item(group, groups, public[group.size], reconstruction)
                by_holder.setdefault(holder, []).append(item)
        return [
            Sitting(self._view(threat, template, sizes, questions.pool, self._auxiliary(threat, holder, leaked)), items)
            for holder, items in sorted(by_holder.items())
        ]

    def _names(self) -> list[str]:
        return [*self._shared.wire, *self.population.shadows]

    def _share(self, draft: StyleDraft, rng: torch.Generator) -> StyleStatistics:
        shared = self.defense.protect(draft, rng)
        assert isinstance(shared, StyleStatistics)
        return shared

    def _holder(self, threat: ThreatModel, client: str) -> str | None:
        """Which adversary reads this client's artifact: the domain of the client that received it, or one for all."""
        if threat.auxiliary is not Auxiliary.OWN_DOMAIN:
            return ""
        receiver = self._shared.receiver.get(client)
        if receiver is None:
            return None
        return self.population.sources[self.population.main_domain(receiver)]

    def _leak(self, rng: torch.Generator) -> dict[str, Tensor]:
        leaked = {}
        for name in self._names():
            n = len(self.population.data(name))
            leaked[name] = torch.randperm(n, generator=rng)[: int(LEAKED_SHARE * n)]
        return leaked

    def _public(self, template: StyleStatistics, size: int | None, rng: torch.Generator) -> Tensor:
        """Vectors (M, D) of artifacts of this size shared from the public images of every source domain."""
        vectors = []
        for domain in self.population.auxiliary.values():
            mean, std = self._shared.styles(domain.images, template.at)
            maps = self._shared.maps(domain.images, template.at)
            count = min(len(mean), self._typical() if size is None else size)
            for _ in range(PUBLIC_ARTIFACTS):
                index = torch.randperm(len(mean), generator=rng)[:count]
                draft = draft_like(template, mean[index], std[index], "client", maps[index])
                vectors.append(self._share(draft, rng).vector())
        return torch.stack(vectors)

    def _typical(self) -> int:
        sizes = sorted(len(self.population.data(name)) for name in self._names())
        return sizes[len(sizes) // 2]

    def _view(
        self,
        threat: ThreatModel,
        template: StyleStatistics,
        sizes: Sequence[int | None],
        pool: Tensor,
        auxiliary: tuple[Domain, ...],
    ) -> View:
        return View(
            threat=threat,
            classes=self.federation.classes,
            sources=self.population.sources,
            sizes=tuple(self._typical() if size is None else size for size in sizes),
            image_size=self.federation.image_size,
            _auxiliary=auxiliary,
            _styles=lambda images: self._shared.styles(images, template.at),
            _share=self._share,
            _maps=lambda images: self._shared.maps(images, template.at),
            _template=template,
            _candidates=pool,
        )

    def _auxiliary(self, threat: ThreatModel, holder: str, leaked: Mapping[str, Tensor]) -> tuple[Domain, ...]:
        public = self.population.auxiliary
        if threat.auxiliary is Auxiliary.NONE:
            return ()
        if threat.auxiliary is Auxiliary.OTHER_DOMAIN:
            return (self.population.target,)
        if threat.auxiliary is Auxiliary.OWN_DOMAIN:
            return (public[holder],)
        if threat.auxiliary is Auxiliary.SAME_DOMAINS:
            return tuple(public.values())
        domains = []
        for d, domain in enumerate(public.values()):
            images, labels = [domain.images], [domain.labels]
            for name, index in leaked.items():
                data = self.population.data(name)
                of_domain = index[self.population.domain_of[name][index] == d]
                images.append(data.images[of_domain])
                labels.append(data.labels[of_domain])
            domains.append(Domain(domain.name, torch.cat(images), torch.cat(labels)))
        return tuple(domains)
