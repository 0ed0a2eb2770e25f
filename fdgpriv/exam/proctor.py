"""The evaluator of one trained federation: gives each adversary of a threat model its questions and what it may hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fdgpriv.artifact import ModelState, StyleStatistics
from fdgpriv.evidence import Evidence
from fdgpriv.federation import Domain, Federation, LocalData, generator
from fdgpriv.once import Once
from fdgpriv.partition import Population
from fdgpriv.roles import Defense, Method
from fdgpriv.subjects import Craft, Holding, Maker, StyleCraft, Subject, subjects_of
from fdgpriv.threat import Auxiliary, ThreatModel
from fdgpriv.transcript import Transcript

from .heard import Heard
from .questions import ALTERNATIVES, ARTIFACTS_PER_CLIENT, Questions
from .sitting import Item, Sitting, View

LEAKED_SHARE = 0.5
PUBLIC_ARTIFACTS = 20  # per domain, to learn the public distribution from
PUBLIC_COSTLY = 3  # where making one takes long
LAID_OUT = 4  # so many layouts of questions are kept


@dataclass(frozen=True, eq=False)
class _LaidOut:
    """What is asked about one subject, whoever asks; the share that leaked, if any may, and which images, by client."""

    questions: Questions
    share: float | None
    leaked: Mapping[str, Tensor]
    items: Sequence[Item]

    @cached_property
    def heard(self) -> Heard:
        """What readers remember of the artifacts."""
        every = [ask.question for item in self.items for asks in item.asked.values() for ask in asks]
        return Heard.among((question.artifact, question.suspects) for question in every)


@dataclass(eq=False)
class Proctor:
    """Lays out examinations of what one run shared.

    Attributes:
        population: All that the evaluator knows.
        method, federation, defense: As trained.
        transcript: As recorded.
        seed: Of all draws here.
        per_client: By number of images behind an artifact, how many such artifacts of each client.
        alternatives: How many artifacts stand in for each control.
    """

    population: Population
    method: Method
    federation: Federation
    defense: Defense
    transcript: Transcript
    seed: int
    per_client: Mapping[int, int] = field(default_factory=lambda: ARTIFACTS_PER_CLIENT)
    alternatives: int = ALTERNATIVES
    evidence: Evidence | None = field(default=None, init=False)
    subjects: Mapping[str, Subject[Craft]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._maker = Maker(self.seed)
        self._learned = Once[Once[Any]]()
        self._laid_out = Once[_LaidOut](most=LAID_OUT)  # one attack's adversaries come one after the other
        self.evidence = Evidence.of(self.transcript, self.method, self.federation, self.seed)
        self.subjects = subjects_of(
            self.transcript, self.method, self.federation, self.defense, self.population, self.evidence
        )

    @property
    def shares_styles(self) -> bool:
        """Whether any client's style statistics are on record, with the model they were taken under."""
        return self.evidence is not None

    @property
    def template(self) -> StyleStatistics:
        """One style as it is on the wire."""
        craft = self.subject(StyleStatistics.kind).craft
        assert isinstance(craft, StyleCraft)
        return craft.template

    def subject(self, name: str) -> Subject[Craft]:
        """The subject of this name; raises ValueError where none can be examined."""
        if name not in self.subjects:
            raise ValueError(f"{self.method.name()} shared no {name.replace('_', ' ')}: there is nothing to examine")
        return self.subjects[name]

    def too_little(self, subject: Subject[Craft], threat: ThreatModel) -> str | None:
        """Why there is too little here to examine this adversary on; None where there is enough.

        It wants a second client to tell the first one from, and in each domain that anything is learned from more public
        images than there are classes.
        """
        if len(subject.clients) + len(self.population.shadows) < 2:
            return f"only one client shared a {subject.kind.replace('_', ' ')}, so there is nobody to tell it from"
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
        subject: Subject[Craft],
        threat: ThreatModel,
        sizes: Sequence[int | None],
        *,
        reconstruction: bool,
        asks_size: bool = False,
        alone: bool = False,
        leaked_share: float = LEAKED_SHARE,
    ) -> list[Sitting]:
        """The adversaries of this threat model, each with its items: one sitting for each distinct auxiliary data.

        Args:
            subject: What they are examined on.
            threat: Who is examined.
            sizes: Numbers of images behind the artifacts; None for the whole client.
            reconstruction: Whether bounds for images (nearest_own, autoencoder) are wanted.
            asks_size: Whether the number of images behind an artifact is what is asked.
            alone: Whether what each image contributes to an artifact is part of the truth.
            leaked_share: Of each client's images, to an adversary to whom any leaked.
        """
        share = leaked_share if threat.auxiliary is Auxiliary.LEAKED else None
        key = (subject, tuple(sizes), reconstruction, asks_size, alone, share)
        asked = self._laid_out.get(key, lambda: self._lay_out(*key))
        by_holder: dict[str, list[Item]] = {}
        for item in asked.items:
            if (holder := self._holder(subject, threat, item.client)) is not None:
                by_holder.setdefault(holder, []).append(item)
        return [Sitting(self._view(asked, threat, sizes, holder), items) for holder, items in sorted(by_holder.items())]

    def _lay_out(
        self,
        subject: Subject[Craft],
        sizes: Sequence[int | None],
        reconstruction: bool,
        asks_size: bool,
        alone: bool,
        share: float | None,
    ) -> _LaidOut:
        """All that is asked about one subject, whoever asks."""
        rng = generator(self.seed, 5)
        questions = Questions(self.population, subject, self._maker, rng, asks_size, alone, self.alternatives)
        leaked = {} if share is None else self._leak(questions.names, share, rng)
        groups = questions.groups(sizes, self.per_client, leaked)
        # around the one model of all, a random one would hold what is asked for; another federation for random ones alone
        # would cost too much
        none = (None,) if subject.alone or subject.together else ()
        public = {size: self._public(subject, size) for size in sizes if size not in none}
        if asks_size:
            public = dict.fromkeys(sizes, torch.cat(list(public.values())))
        return _LaidOut(questions, share, leaked, questions.items(groups, public, reconstruction))

    def _holder(self, subject: Subject[Craft], threat: ThreatModel, client: str) -> str | None:
        """Which adversary reads this client's artifact: the domain of the client that received it, or one for all."""
        if threat.auxiliary is not Auxiliary.OWN_DOMAIN:
            return ""
        receiver = subject.receiver.get(client)
        if receiver is None:
            return None
        return self.population.sources[self.population.main_domain(receiver)]

    def _leak(self, names: Sequence[str], share: float, rng: torch.Generator) -> dict[str, Tensor]:
        leaked = {}
        for name in names:
            data = self.population.data(name)
            leaked[name] = torch.randperm(len(data), generator=rng)[: leaks(share, data)]
        return leaked

    def _public(self, subject: Subject[Craft], size: int | None) -> Tensor:
        """Rows (M, F) of artifacts of this size made of the public images of every source domain, always the same ones."""
        rows, rng = [], generator(self.seed, 13, size or 0)
        for d, domain in enumerate(self.population.auxiliary.values()):
            held = Holding(domain.images, domain.labels, self._sent_to_domain(subject, d))
            count = min(len(domain), self._typical(subject) if size is None else size)
            for _ in range(PUBLIC_COSTLY if subject.costly else PUBLIC_ARTIFACTS):
                index = torch.randperm(len(domain), generator=rng)[:count]
                made = self._maker.make(subject, f"public {domain.name}", held, index, rng, "client")
                rows.append(subject.craft.flat(made, held.sent))
        return torch.stack(rows)

    def _sent_to_domain(self, subject: Subject[Craft], domain: int) -> ModelState | None:
        """What a client of this domain was sent; any client's where none has it."""
        near = [name for name in subject.sent if self.population.main_domain(name) == domain]
        return subject.sent[(near or list(subject.sent))[0]] if subject.sent else None

    def _behind(self, subject: Subject[Craft]) -> int:
        """How many images are behind an artifact on the wire: of all clients, or of one in the middle of them."""
        if subject.alone:
            return sum(len(self.population.data(name)) for name in subject.clients)
        return self._typical(subject)

    def _typical(self, subject: Subject[Craft]) -> int:
        sizes = sorted(len(self.population.data(name)) for name in (*subject.clients, *self.population.shadows))
        return sizes[len(sizes) // 2]

    def _view(self, asked: _LaidOut, threat: ThreatModel, sizes: Sequence[int | None], holder: str) -> View:
        questions, subject = asked.questions, asked.questions.subject
        return View(
            threat=threat,
            classes=self.federation.classes,
            sources=self.population.sources,
            sizes=tuple(self._behind(subject) if size is None else size for size in sizes),
            image_size=self.federation.image_size,
            _auxiliary=self._auxiliary(threat, holder, asked.leaked),
            _craft=subject.craft,
            _candidates=questions.pool.images,
            _earlier=tuple(
                subject.craft.alike(subject.earlier[name], subject.earlier[name].level) for name in questions.earlier
            ),
            typical=self._typical(subject),
            costly=subject.costly,
            seed=self.seed,
            learned=self._learned.get((subject.craft, threat.auxiliary, holder, asked.share), Once),
            heard=asked.heard,
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


def leaks(share: float, data: LocalData) -> int:
    """How many of a client's images this share is."""
    return int(share * len(data))
