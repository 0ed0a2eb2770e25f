"""What readers of artifacts share: practice artifacts made from auxiliary images, and their standardised vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fdgpriv.artifact import ModelState
from fdgpriv.exam import Question, View
from fdgpriv.federation import Domain, generator
from fdgpriv.subjects import Craft, Subject


@dataclass(frozen=True, eq=False)
class Vectors:
    """What artifacts say that the adversary made itself, through the same defense.

    Attributes:
        inputs: (M, D) vectors of the artifacts (`View.vector`).
        sizes: (M,) how many images are behind each.
    """

    inputs: Tensor
    sizes: Tensor

    def standardised(self, inputs: Tensor) -> Tensor:
        """Vectors (M, D) in units of the practice artifacts' spread."""
        center, spread = self.inputs.mean(0), self.inputs.std(0)
        return (inputs - center) / (spread + 1e-3 * spread.mean() + 1e-8)


@dataclass(frozen=True, eq=False)
class Practice(Vectors):
    """The same, with the images that it made them from.

    Attributes:
        members: By artifact, indices into `images` of what lies behind it.
        images, labels, domains: Of all auxiliary images, in one row.
    """

    members: Sequence[Tensor]
    images: Tensor
    labels: Tensor
    domains: Tensor


def vectors(view: View, questions: Sequence[Question]) -> Tensor:
    """(M, D): what the artifacts say."""
    return torch.stack([view.vector(question.artifact, question.sent) for question in questions])


def want_practice(name: str, practice: int, costly: int = 2) -> None:
    """Raise ValueError where too few practice artifacts are asked for to learn a spread from."""
    for field, given in (("practice", practice), ("practice_costly", costly)):
        if given < 2:
            raise ValueError(f"{name}.{field}: want at least 2, got {given}")


def sizes_of(subject: Subject[Craft], sizes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Those of `sizes` that are examined: single images and whole clients where making artifacts takes long."""
    return tuple(size for size in sizes if size in (1, None)) if subject.costly else sizes


def held(view: View) -> tuple[Domain, ...]:
    """The auxiliary images; raises ValueError where the threat model holds none."""
    if not sum(len(domain) for domain in view.auxiliary):
        raise ValueError(f"the threat model {view.threat.role!r} holds no auxiliary images to practise on")
    return view.auxiliary


def public_images(view: View) -> tuple[Tensor, Tensor]:
    """All auxiliary images (N, 3, H, W) in one row, and their labels (N,)."""

    def row() -> tuple[Tensor, Tensor]:
        domains = held(view)
        return torch.cat([domain.images for domain in domains]), torch.cat([domain.labels for domain in domains])

    images, labels = view.learned.get(public_images, row)
    return images, labels


def practise(view: View, per_size: int, sent: ModelState | None = None) -> Practice:
    """Practice artifacts: each auxiliary image alone, and `per_size` groups of each other size; made once for all attacks.

    A group's images come from one domain, as a client's do. Where making an artifact takes long, `per_size` images alone.
    """
    domains, (images, labels) = held(view), public_images(view)
    every = -(-len(images) // per_size) if view.costly else 1
    alone = torch.arange(len(images) if 1 in view.sizes else 0)[::every, None]
    of_domain = torch.cat([torch.full((len(domain),), d) for d, domain in enumerate(domains)])
    start = torch.tensor([0, *(len(domain) for domain in domains)]).cumsum(0)

    def made(index: Tensor, rng: torch.Generator) -> Tensor:
        d = int(of_domain[index[0]])
        return view.vector(view.make(domains[d].images, domains[d].labels, index - start[d], rng, sent), sent)

    def singles() -> list[Tensor]:
        own = generator(view.seed, 17)
        return [made(index, own) for index in alone]

    def group(size: int, turn: int) -> tuple[Tensor, Tensor]:
        rng, d = generator(view.seed, 23, size, turn), turn % len(domains)
        index = start[d] + torch.randperm(len(domains[d]), generator=rng)[:size]
        return index, made(index, rng)

    wanted = [(size, turn) for size in view.sizes if size > 1 for turn in range(per_size)]
    groups = [view.learned.get((practise, *which, sent), partial(group, *which)) for which in wanted]
    members = [*alone, *(index for index, _ in groups)]
    inputs = [*view.learned.get((practise, len(alone), sent), singles), *(vector for _, vector in groups)]
    sizes = torch.tensor([len(index) for index in members])
    return Practice(torch.stack(inputs), sizes, members, images, labels, of_domain)
