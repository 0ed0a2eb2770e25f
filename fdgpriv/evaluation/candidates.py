"""The pool of candidate images: all images of the clients, and the line-ups and membership candidates drawn from it."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fdgpriv.federation.partition import Population

MAX_LINE_UPS = 12  # line-ups per artifact
CANDIDATES = 100  # images in a line-up
MAX_MEMBERS = 24  # images of the artifact among the membership candidates
MAX_NON_MEMBERS = 24  # of each kind, for an artifact of few images: their number limits the precision anyway
MAX_OTHER_IMAGES = 1000  # images of other clients, for the artifact of a whole client


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """The training and held-out images of these clients, in random order.

    Attributes:
        population: The ground truth.
        names: The clients and shadow clients.
    """

    population: Population
    names: tuple[str, ...]

    @property
    def images(self) -> Tensor:
        """(P, 3, H, W)."""
        return self.population.pool(self.names)

    @cached_property
    def domain(self) -> dict[str, int]:
        """By client, its main domain."""
        return {name: self.population.main_domain(name) for name in self.names}

    def membership_candidates(
        self, client: str, index: Tensor, number: int | None = None, of_all: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Membership candidates (N,), in the pool's order, and which are members.

        Members are the client's images at `index`. Non-members are images of its domain that any client held out and, unless
        the artifact is `of_all` clients' images, those that other clients trained on.

        Args:
            client: The artifact's client.
            index: The artifact's images, as indices into the client's.
            number: For an artifact of few images, its number among the client's artifacts: at most `MAX_NON_MEMBERS` images
                of each kind are chosen, evenly spread. None for the artifact of a whole client.
            of_all: Whether the artifact is of all clients' images.
        """
        kinds = [self.held_out(self.domain[client])]
        if not of_all:
            kinds.append(self._trained_by_others(client))
        if number is not None:
            kinds = [_evenly_spread(images, number + self.names.index(client)) for images in kinds]
        return self._with_members(client, index, torch.cat(kinds))

    def own_membership_candidates(self, client: str, index: Tensor) -> tuple[Tensor, Tensor]:
        """As `membership_candidates`, with only the client's own held-out images, since clients may share images."""
        return self._with_members(client, index, self._held_out_by(client))

    def held_out_candidates(self, client: str) -> tuple[Tensor, Tensor]:
        """As `membership_candidates` of a whole client, with the client's held-out images as members.

        Non-members are images that other clients of its domain held out or trained on.
        """
        inside, held_out = self._held_out_by(client), self.held_out(self.domain[client])
        outside = [held_out[~torch.isin(held_out, inside)], self._trained_by_others(client)]
        candidates, order = torch.cat([inside, *outside]).sort(stable=True)
        return candidates, order < len(inside)

    def held_out(self, domain: int) -> Tensor:
        """(N,): the images that clients of this main domain held out."""
        names = [name for name in self.names if self.domain[name] == domain]
        return torch.cat([self._held_out_by(name) for name in names])

    def _trained_by_others(self, client: str) -> Tensor:
        """(N,): training images of other clients of its domain; equally many of each if there are too many."""
        others = self._others_of_domain(client)
        sizes = [len(self.population.data(name)) for name in others]
        limit = max(sizes, default=0) if sum(sizes) <= MAX_OTHER_IMAGES else max(1, MAX_OTHER_IMAGES // len(others))
        by_client = [
            self._trained_by(name, torch.arange(min(limit, size))) for name, size in zip(others, sizes, strict=True)
        ]
        return torch.cat([torch.zeros(0, dtype=torch.int64), *by_client])

    def trained_by(self, index: Tensor) -> Tensor:
        """(N,): the number of the client that trained on each image of the pool at `index` (N,); -1 for held-out images."""
        return self._trainer[index]

    def image_name(self, index: int) -> str:
        """``CLIENT/train/N`` or ``CLIENT/held_out/N``: the N-th image that this client trains on or held out, from 0."""
        return self._image_names[index]

    def non_members(self, domain: int, near: bool, times: int, rng: torch.Generator) -> list[Tensor]:
        """`times` sets of held-out images in random order: of this domain if `near`, else of other domains."""
        domains = {d for d in self.domain.values() if (d == domain) is near}
        by_domain = [self.held_out(d) for d in domains]
        sets = [by_domain[i % len(by_domain)] for i in range(times if by_domain else 0)]
        return [images[torch.randperm(len(images), generator=rng)] for images in sets if len(images) > 1]

    def line_ups(self, client: str, index: Tensor, rng: torch.Generator, of_all: bool = False) -> tuple[Tensor, Tensor]:
        """Places each of the first images at `index` among other images, one line-up for each.

        The others are training images of other clients of the domain; if there are none, the client's images that are not at
        `index`; if there are none of these either, images of clients of other domains. For an artifact that is `of_all`
        clients' images, they are images that clients of the domain held out.

        Returns: (T, N) line-ups, and the position (T,) of the client's image in each.
        """
        others = self.held_out(self.domain[client]) if of_all else self._other_images(client, index)
        count = min(CANDIDATES, len(others) + 1)
        rows, positions = [], []
        for image in index[:MAX_LINE_UPS]:
            row = others[torch.randperm(len(others), generator=rng)[:count]]
            position = int(torch.randint(count, (), generator=rng))
            true_image = self._trained_by(client, image[None])
            rest = position + int(len(row) == count)  # replaces one of the others if there are `count`
            rows.append(torch.cat([row[:position], true_image, row[rest:]]))
            positions.append(position)
        return torch.stack(rows), torch.tensor(positions)

    def _other_images(self, client: str, index: Tensor) -> Tensor:
        """(N,): the other images of `line_ups`."""
        peers, indices = self._others_of_domain(client), torch.arange(len(self.population.data(client)))
        rest = indices[~torch.isin(indices, index)]
        if not peers and len(rest):
            return self._trained_by(client, rest)
        others = peers or [name for name in self.names if name != client]
        return torch.cat([self._trained_by(name, torch.arange(len(self.population.data(name)))) for name in others])

    def _others_of_domain(self, client: str) -> list[str]:
        """The other clients of this client's main domain."""
        return [name for name in self.names if name != client and self.domain[name] == self.domain[client]]

    def line_ups_of_non_members(self, images: Tensor, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """`count` line-ups (T, N) of these images (M,) alone, and the position (T,) of an arbitrary one in each."""
        rows = [images[torch.randperm(len(images), generator=rng)[:CANDIDATES]] for _ in range(count)]
        return torch.stack(rows), torch.randint(len(rows[0]), (count,), generator=rng)

    def _with_members(self, client: str, index: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
        """The client's first images at `index` and the images `outside`, sorted, and which are the former."""
        inside = self._trained_by(client, index[:MAX_MEMBERS])
        candidates, order = torch.cat([inside, outside]).sort(stable=True)
        return candidates, order < len(inside)

    def _trained_by(self, client: str, index: Tensor) -> Tensor:
        """Indices into the pool of the client's training images at `index`."""
        return self._in_pool[index + self._starts[client][0]]

    def _held_out_by(self, client: str) -> Tensor:
        """Indices into the pool of the images that the client held out."""
        return self._in_pool[torch.arange(len(self.population.data(client).held_out_labels)) + self._starts[client][1]]

    @cached_property
    def _trainer(self) -> Tensor:
        """(P,): by image of the pool, the number of the client that trained on it; -1 for held-out images."""
        trainer = torch.full((len(self._in_pool),), -1)
        for number, name in enumerate(self.names):
            trainer[self._trained_by(name, torch.arange(len(self.population.data(name))))] = number
        return trainer

    @cached_property
    def _image_names(self) -> list[str]:
        """By image of the pool, its name."""
        image_names = [""] * len(self._in_pool)
        for name in self.names:
            images = self._trained_by(name, torch.arange(len(self.population.data(name))))
            for use, indices in (("train", images), ("held_out", self._held_out_by(name))):
                for number, index in enumerate(indices.tolist()):
                    image_names[index] = f"{name}/{use}/{number}"
        return image_names

    @cached_property
    def _in_pool(self) -> Tensor:
        """(P,): indices into the pool of all training images, followed by all held-out images."""
        return self.population.pool_order(self.names).argsort()

    @cached_property
    def _starts(self) -> dict[str, tuple[int, int]]:
        """By client, the index of its first training image and of its first held-out image, in the order of `_in_pool`."""
        sizes = [len(self.population.data(name)) for name in self.names]
        held_out_sizes = [len(self.population.data(name).held_out_labels) for name in self.names]
        starts = torch.tensor([0, *sizes, *held_out_sizes]).cumsum(0).tolist()
        return {name: (starts[i], starts[len(sizes) + i]) for i, name in enumerate(self.names)}


def _evenly_spread(images: Tensor, first: int) -> Tensor:
    """At most `MAX_NON_MEMBERS` of the images (N,), evenly spread, starting at `first`."""
    count = min(MAX_NON_MEMBERS, len(images))
    if count == len(images):
        return images
    return images[(first + torch.arange(count) * len(images) // count) % len(images)]


def nearest_other(images: Tensor, index: int) -> Tensor:
    """The image (3, H, W) nearest to the one at `index`, other than itself."""
    distance = (images - images[index]).square().mean(dim=(1, 2, 3))
    distance[index] = torch.inf
    return images[int(distance.argmin())]
