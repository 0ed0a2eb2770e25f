"""What adversaries are asked at one layer: the targets' artifacts, and those of the controls in their place.

Per client and size, groups of images are drawn and shared through the client's defense as its own artifact was. The whole
client's artifact is the one on the wire; a shadow client's is made in the same way, and each client's where the wire
carried styles of single images. AUDIT sections 3 and 6.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fdgpriv.artifact import PEER, StyleDraft, StyleStatistics
from fdgpriv.exam import Asked, Item, Question, Truth, draft_like
from fdgpriv.partition import Population

ARTIFACTS_PER_CLIENT: dict[int, int] = {
    1: 6,
    2: 4,
    5: 3,
    20: 2,
}  # images behind an artifact: how many artifacts per client
ALTERNATIVES = 3  # how many artifacts stand in for each control
RANDOM_STYLES = 12  # and for a random style, where reading one is cheap
LINE_UPS, CANDIDATES = 4, 100
SCORED = 12  # at most so many of the images behind an artifact are scored


@dataclass(frozen=True, eq=False)
class Group:
    """Some images of one client, and the artifact that shares them."""

    client: str
    size: int | None
    number: int
    index: Tensor
    artifact: StyleStatistics


@dataclass(frozen=True, eq=False)
class Questions:
    """Asks about the clients and shadows of one population at one layer.

    Attributes:
        population: All that the evaluator knows.
        styles: By client and shadow, (mean, std) (n, C) of its images.
        maps: By the same, (n, D) what its images are clustered by besides; D is 0 where they are not.
        template: One artifact of this layer.
        wire: By client, what it shared; empty at a layer that nobody shared, and where styles of images were.
        share: A draft, as the clients' defense lets it out.
        rng: Of all draws.
    """

    population: Population
    styles: Mapping[str, tuple[Tensor, Tensor]]
    maps: Mapping[str, Tensor]
    template: StyleStatistics
    wire: Mapping[str, StyleStatistics]
    share: Callable[[StyleDraft, torch.Generator], StyleStatistics]
    rng: torch.Generator

    def groups(
        self, sizes: Sequence[int | None], per_client: Mapping[int, int], leaked: Mapping[str, Tensor]
    ) -> list[Group]:
        """Disjoint groups of each client's images by size, none of them among the leaked ones."""
        found = []
        for name, (mean, std) in self.styles.items():
            maps = self.maps[name]
            order = torch.randperm(len(mean), generator=self.rng)
            order = order[~torch.isin(order, leaked[name])] if name in leaked else order
            for size in sizes:
                if size is None:
                    whole = self.wire.get(name)
                    if whole is None:
                        whole = self.share(draft_like(self.template, mean, std, "client", maps), self.rng)
                    found.append(Group(name, None, 0, order, whole))
                    continue
                behind = "image" if size == 1 else "cluster"
                for number, index in enumerate(order.split(size)[: per_client[size]]):
                    if len(index) == size:
                        draft = draft_like(self.template, mean[index], std[index], behind, maps[index])
                        found.append(Group(name, size, number, index, self.share(draft, self.rng)))
        return found

    def item(self, group: Group, groups: Sequence[Group], public: Tensor, reconstruction: bool) -> Item:
        """All that is asked about one group.

        Args:
            group: The target.
            groups: All targets, of which other clients' stand in as controls.
            public: (M, D) vectors of public artifacts of its size, whose distribution random styles are drawn from.
            reconstruction: Whether the bounds for images are wanted; random styles are fewer then.
        """
        candidates, positions = self._line_ups(group)
        mine = self._truth(group, group.index, candidates, positions)
        domain = self._domain[group.client]
        unit = group.artifact.level
        behind = len(self.population.data(group.client)) if group.size is None else group.size

        def asked(artifact: StyleStatistics) -> Asked:
            return Asked(Question(_alike(artifact, unit), behind, candidates), mine)

        draws = ALTERNATIVES if reconstruction else RANDOM_STYLES
        ask = {
            "attack": [asked(group.artifact)],
            "random_style": [asked(artifact) for artifact in _random(self.template, public, draws, self.rng)],
        }
        peers = [g for g in groups if g.size == group.size and g.client != group.client]
        for name, near in (("other_client", True), ("other_domain", False)):
            others = [g for g in peers if (self._domain[g.client] == domain) is near]
            drawn = torch.randperm(len(others), generator=self.rng)[:ALTERNATIVES].tolist()
            if drawn:
                ask[name] = [asked(others[i].artifact) for i in drawn]
        given: dict[str, list[tuple[Tensor, Truth]]] = {}
        if reconstruction:
            few = [(int(i), self._truth(group, i[None], candidates, positions)) for i in group.index[:ALTERNATIVES]]
            images = self.population.data(group.client).images
            ask["autoencoder"] = [
                Asked(Question(_alike(self._own(group.client, i), unit), 1, candidates), truth) for i, truth in few
            ]
            given["nearest_own"] = [(_nearest_other(images, i), truth) for i, truth in few]
        name = group.client if group.size is None else f"{group.client}/{group.size}/{group.number}"
        return Item(name, group.client, group.size, mine, ask, given)

    def _own(self, client: str, image: int) -> StyleStatistics:
        """The undefended style of one image."""
        (mean, std), maps = self.styles[client], self.maps[client]
        return draft_like(self.template, mean[image][None], std[image][None], "image", maps[image][None]).finish()

    def _truth(self, group: Group, index: Tensor, candidates: Tensor, positions: Tensor) -> Truth:
        data = self.population.data(group.client)
        whole = data.labels if group.size is None else data.labels[index]
        scored = index[:SCORED]
        return Truth(
            images=data.images[scored],
            labels=data.labels[scored],
            histogram=whole.bincount(minlength=data.classes) / len(whole),
            domain=self._domain[group.client],
            positions=positions,
            candidates=candidates,
            pool=self.pool,
        )

    @cached_property
    def pool(self) -> Tensor:
        """(P, 3, H, W): all private images in one row."""
        return torch.cat([self.population.data(name).images for name in self.styles])

    @cached_property
    def _domain(self) -> dict[str, int]:
        """Each client's main domain."""
        return {name: self.population.main_domain(name) for name in self.styles}

    @cached_property
    def _place(self) -> dict[str, int]:
        """Where in the pool each client's images begin."""
        place, start = {}, 0
        for name in self.styles:
            place[name] = start
            start += len(self.population.data(name))
        return place

    def _line_ups(self, group: Group) -> tuple[Tensor, Tensor]:
        """Line-ups of one image of the group among images of other clients of its main domain (others if too few)."""
        domain = self._domain[group.client]
        names = [name for name in self.styles if name != group.client]
        near = [name for name in names if self._domain[name] == domain] or names
        others = torch.cat([torch.arange(len(self.population.data(name))) + self._place[name] for name in near])
        count = min(CANDIDATES, len(others) + 1)
        rows, positions = [], []
        for image in group.index[:LINE_UPS]:
            row = others[torch.randperm(len(others), generator=self.rng)[:count]]
            position = min(int(torch.randint(count, (), generator=self.rng)), len(row) - 1)
            row[position] = int(image) + self._place[group.client]
            rows.append(row)
            positions.append(position)
        return torch.stack(rows), torch.tensor(positions)


def _random(template: StyleStatistics, like: Tensor, count: int, rng: torch.Generator) -> list[StyleStatistics]:
    """`count` artifacts drawn from the Gaussian with the mean and covariance of the vectors `like` (M, D)."""
    spread = (like - like.mean(0)) / max(1, len(like) - 1) ** 0.5
    drawn = like.mean(0) + torch.randn(count, len(like), generator=rng) @ spread
    return [_from_vector(template, row) for row in drawn]


def _alike(artifact: StyleStatistics, unit: str) -> StyleStatistics:
    """The artifact without its sender's name, labelled as the target's is: nothing but its numbers tells them apart."""
    return StyleStatistics.build(artifact.tensors(), {**artifact.facts(), "client": PEER, "behind": unit})


def _from_vector(template: StyleStatistics, vector: Tensor) -> StyleStatistics:
    parts = vector.chunk(4 if len(template.mean_var) else 2)
    mean, std = parts[0], parts[1].clamp_min(0)
    nothing = mean.new_empty(0)
    mean_var, std_var = (parts[2].clamp_min(0), parts[3].clamp_min(0)) if len(parts) == 4 else (nothing, nothing)
    tensors = {"mean": mean, "std": std, "mean_var": mean_var, "std_var": std_var}
    return StyleStatistics.build(tensors, template.facts())


def _nearest_other(images: Tensor, index: int) -> Tensor:
    """The image (3, H, W) nearest to the one at `index`, itself left out."""
    distance = (images - images[index]).square().mean(dim=(1, 2, 3))
    distance[index] = torch.inf
    return images[int(distance.argmin())]
