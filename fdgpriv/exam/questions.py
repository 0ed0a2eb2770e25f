"""What adversaries are asked of one subject: the targets' artifacts, and those of the controls in their place.

Per client and size, groups of images are drawn and shared through the client's defense as its own artifact was. The whole
client's artifact is the one on the wire; a shadow client's is made in the same way, and each client's where the wire
carried artifacts of single images. AUDIT sections 3 and 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fdgpriv.artifact import Artifact
from fdgpriv.partition import Population
from fdgpriv.subjects import Craft, Holding, Maker, Subject

from .pool import Pool
from .sitting import Asked, Item, Question, Truth

ARTIFACTS_PER_CLIENT: dict[int, int] = {
    1: 4,
    2: 3,
    5: 2,
    20: 2,
}  # images behind an artifact: how many artifacts per client
COSTLY_SINGLES = 3  # of one image where making one takes long, and one of each other number
ALTERNATIVES = 3  # how many artifacts stand in for each control by default
RANDOM_ARTIFACTS = 6  # and for a random one, where reading one is cheap
SCORED = 12  # at most so many of the images behind an artifact are scored


@dataclass(frozen=True, eq=False)
class Group:
    """Some images of one client, and the artifact that shares them."""

    client: str
    size: int | None
    number: int
    index: Tensor
    artifact: Artifact


@dataclass(frozen=True, eq=False)
class Questions:
    """Asks about the clients and shadows of one population.

    Attributes:
        population: All that the evaluator knows.
        subject: What is asked about.
        maker: Of its artifacts.
        rng: Of all draws.
        asks_size: Whether the number of images behind an artifact is what is asked: it is not told then, and what
            stands in an artifact's place is of any number.
        alone: Whether what each image contributes to an artifact is part of the truth.
        alternatives: How many artifacts stand in for each control.
    """

    population: Population
    subject: Subject[Craft]
    maker: Maker
    rng: torch.Generator
    asks_size: bool = False
    alone: bool = False
    alternatives: int = ALTERNATIVES
    _asked: dict[int, tuple[object, Question]] = field(default_factory=dict, init=False)
    _drawn: dict[tuple[int | None, int], Sequence[Artifact]] = field(default_factory=dict, init=False)

    def holding(self, name: str) -> Holding:
        """What this client or shadow holds."""
        data = self.population.data(name)
        return Holding(data.images, data.labels, self.subject.sent.get(name))

    def groups(
        self, sizes: Sequence[int | None], per_client: Mapping[int, int], leaked: Mapping[str, Tensor]
    ) -> list[Group]:
        """Disjoint groups of each client's images by size, none of them among the leaked ones."""
        found = []
        wire = self.subject.wire
        if self.subject.together and not wire:
            wire = self.maker.make_all(self.subject, {name: self.holding(name) for name in self.names})
        for name in self.names:
            held = self.holding(name)
            order = torch.randperm(len(held.images), generator=self.rng)
            order = order[~torch.isin(order, leaked[name])] if name in leaked else order
            for size in sizes:
                if size is None:
                    whole = wire.get(name)
                    if whole is None:
                        whole = self._made(name, held, torch.arange(len(held.images)), "client")
                    found.append(Group(name, None, 0, order, whole))
                    continue
                behind = "image" if size == 1 else "cluster"
                for number, index in enumerate(order.split(size)[: self._count(size, per_client[size])]):
                    if len(index) == size:
                        artifact = self._made(name, held, index, behind)
                        found.append(Group(name, size, number, index, artifact))
        return found

    def _count(self, size: int, of_each: int) -> int:
        """Of so many artifacts of each client, how many are asked about: clients are the units, more of each add little."""
        return min(of_each, COSTLY_SINGLES if size == 1 else 1) if self.subject.costly else of_each

    def _made(self, name: str, held: Holding, index: Tensor, behind: str) -> Artifact:
        return self.maker.make(self.subject, name, held, index, self.rng, behind)

    def items(self, groups: Sequence[Group], public: Mapping[int | None, Tensor], reconstruction: bool) -> list[Item]:
        """All that is asked, one item for each group.

        Args:
            groups: The targets, of which other clients' stand in as controls.
            public: By size, (M, F) rows of public artifacts, whose distribution random artifacts are drawn from; none
                of a size, no random artifacts.
            reconstruction: Whether the bounds for images are wanted; random artifacts are fewer then.
        """
        return [self._item(group, groups, public.get(group.size), reconstruction) for group in groups]

    def _item(self, group: Group, groups: Sequence[Group], public: Tensor | None, reconstruction: bool) -> Item:
        candidates, positions = self.pool.line_ups(group.client, group.index, self.rng)
        suspects, members = self.pool.suspects(group.client, group.index)
        mine = self._truth(group, group.index, candidates, positions, suspects, members)
        domain = self.pool.domain[group.client]

        def asked(other: Group | Artifact) -> Asked:
            if not (reconstruction and self.subject.costly):
                return Asked(self._question(group, other, candidates, suspects), mine)
            if id(other) not in self._asked:  # read alike wherever it stands, so read once
                target = other if isinstance(other, Group) else group
                self._asked[id(other)] = other, self._question(target, other, candidates, suspects)
            return Asked(self._asked[id(other)][1], mine)

        ask = {"attack": [asked(group)]}
        if public is not None:
            ask["random_style"] = [asked(artifact) for artifact in self._random(group, public, reconstruction)]
        peers = [g for g in groups if g.client != group.client and (self.asks_size or g.size == group.size)]
        for name, near in (("other_client", True), ("other_domain", False)):
            if self.subject.alone and group.size is None:
                ask[name] = [
                    self._never_there(group, mine, one)
                    for one in self.pool.strangers(domain, near, self.alternatives, self.rng)
                ]
                continue
            others = [g for g in peers if (self.pool.domain[g.client] == domain) is near]
            drawn = torch.randperm(len(others), generator=self.rng)[: self.alternatives].tolist()
            if drawn:
                ask[name] = [asked(others[i]) for i in drawn]
        ask = {name: asks for name, asks in ask.items() if asks}
        given: dict[str, list[tuple[Tensor, Truth]]] = {}
        if reconstruction:
            few = [
                (int(i), self._truth(group, i[None], candidates, positions, suspects, members))
                for i in group.index[: self.alternatives]
            ]
            held = self.holding(group.client)
            given["nearest_own"] = [(_nearest_other(held.images, i), truth) for i, truth in few]
            if not self.subject.costly:
                ask["autoencoder"] = [
                    Asked(self._question(group, self._own(held, i), candidates, suspects, 1), truth) for i, truth in few
                ]
        name = group.client if group.size is None else f"{group.client}/{group.size}/{group.number}"
        return Item(name, group.client, group.size, mine, ask, given)

    def _question(
        self, target: Group, other: Group | Artifact, candidates: Tensor, suspects: Tensor, behind: int | None = None
    ) -> Question:
        """Asks of `other` as if it were the target's."""
        artifact, whose = (other.artifact, other.client) if isinstance(other, Group) else (other, target.client)
        if self.asks_size:
            behind = 0
        elif behind is None:
            behind = self._behind(target.client) if target.size is None else target.size
        alike = self.subject.craft.alike(artifact, target.artifact.level)
        return Question(alike, behind, candidates, suspects, self.subject.sent.get(whose))

    def _behind(self, client: str) -> int:
        """How many images are behind the artifact on the wire that this client's stands for."""
        return sum(len(self.population.data(name)) for name in (self.names if self.subject.alone else (client,)))

    def _never_there(self, group: Group, mine: Truth, strangers: Tensor) -> Asked:
        """The same artifact asked about images that are not behind it, half of which pass for members."""
        members = torch.arange(len(strangers)) < len(strangers) // 2
        candidates, rows = mine.candidates.clone(), torch.arange(len(mine.candidates))
        candidates[rows, mine.positions] = strangers[rows % len(strangers)]
        truth = replace(
            mine,
            suspects=strangers,
            members=members,
            candidates=candidates,
            images=self.pool.images[strangers[:SCORED]],
        )
        return Asked(self._question(group, group, candidates, strangers), truth)

    def _random(self, group: Group, public: Tensor, reconstruction: bool) -> Sequence[Artifact]:
        """Artifacts drawn from the public distribution; where reading them takes long, the same few for all targets."""
        sent = self.subject.sent.get(group.client)
        if not (reconstruction or self.subject.costly):
            return self.subject.craft.random(public, RANDOM_ARTIFACTS, sent, self.rng)
        key = (group.size, id(sent))
        if key not in self._drawn:
            count = 1 if self.subject.own_models else self.alternatives
            self._drawn[key] = self.subject.craft.random(public, count, sent, self.rng)
        return self._drawn[key]

    def _own(self, held: Holding, image: int) -> Artifact:
        """The undefended artifact of one image."""
        return self.subject.craft.make(held, torch.tensor([image]), self.rng, behind="image", defended=False)

    def _truth(
        self, group: Group, index: Tensor, candidates: Tensor, positions: Tensor, suspects: Tensor, members: Tensor
    ) -> Truth:
        data = self.population.data(group.client)
        whole = data.labels if group.size is None else data.labels[index]
        scored = index[:SCORED]
        return Truth(
            images=data.images[scored],
            labels=data.labels[scored],
            histogram=whole.bincount(minlength=data.classes) / len(whole),
            domain=self.pool.domain[group.client],
            positions=positions,
            candidates=candidates,
            pool=self.pool.images,
            members=members,
            count=self._behind(group.client) if group.size is None else len(whole),
            place=self.earlier.index(group.client) if group.client in self.earlier else -1,
            suspects=suspects,
            alone=self._alone(group, scored) if self.alone else torch.empty(0, 0),
        )

    def _alone(self, group: Group, scored: Tensor) -> Tensor:
        """What each of the scored images (n,) contributes to the group's artifact, (n, D)."""
        held = self.holding(group.client)
        behind = torch.arange(len(held.images)) if group.size is None else group.index
        place = (scored[:, None] == behind).int().argmax(1)
        return self.subject.craft.each(held, behind, self.rng)[place]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All clients that shared one, and the shadows, except where the artifacts hang on who took part."""
        subject = self.subject
        return (*subject.clients, *(() if subject.alone or subject.together else self.population.shadows))

    @cached_property
    def earlier(self) -> tuple[str, ...]:
        """Whose earlier artifacts stand in `View.earlier`, in that order, which says nothing."""
        known = sorted(self.subject.earlier)
        return tuple(known[i] for i in torch.randperm(len(known), generator=self.rng))

    @cached_property
    def pool(self) -> Pool:
        """The images that are asked about."""
        return Pool(self.population, self.names)


def _nearest_other(images: Tensor, index: int) -> Tensor:
    """The image (3, H, W) nearest to the one at `index`, itself left out."""
    distance = (images - images[index]).square().mean(dim=(1, 2, 3))
    distance[index] = torch.inf
    return images[int(distance.argmin())]
