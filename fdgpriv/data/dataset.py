"""Labelled images: of one domain, of a benchmark with several domains, and of one client."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.utils.seeds import generator


@dataclass(frozen=True, eq=False)
class Domain:
    """Labelled images of one domain.

    Attributes:
        name: The domain, for example ``"sketch"``.
        images: (N, 3, H, W) float32 in [0, 1].
        labels: (N,) int64 in [0, K).
    """

    name: str
    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[1] != 3:
            raise ValueError(f"want images (N, 3, H, W), got {tuple(self.images.shape)}")
        if self.labels.shape != self.images.shape[:1]:
            raise ValueError(f"want one label per image ({len(self.images)},), got {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        return len(self.images)

    def take(self, index: Tensor) -> "Domain":
        """The samples at `index` (M,), in that order."""
        return Domain(self.name, self.images[index], self.labels[index])

    def part(self, start: int, stop: int) -> "Domain":
        """The samples from `start` to `stop`, as views of the same memory."""
        return Domain(self.name, self.images[start:stop], self.labels[start:stop])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A domain generalization benchmark: the same classes in several domains.

    Attributes:
        name: As the command line names it.
        classes: K class names; a label is an index into them.
        domains: The domains, in the dataset's own order.
        default_target: The domain left out when the user names none.
        about: What it is, in one or two sentences, for reports.
        limits: What it is not: what a reader must not conclude from figures on it.
        flip: Whether a horizontal flip keeps the class (true for photographs, false for digits).
        translate: Largest random translation in training, as a share of the side.
    """

    name: str
    classes: tuple[str, ...]
    domains: tuple[Domain, ...]
    default_target: str
    about: str
    limits: str
    flip: bool = False
    translate: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the domains."""
        return tuple(domain.name for domain in self.domains)

    def domain(self, name: str) -> Domain:
        """The domain called `name`; a ValueError lists the known ones."""
        for domain in self.domains:
            if domain.name == name:
                return domain
        raise ValueError(f"want a domain of {self.name}: {', '.join(self.names)}; got {name!r}")

    def few(self, count: int) -> "Dataset":
        """At most `count` images of each domain, drawn at random but always the same ones, in their order."""
        drawn = (torch.randperm(len(domain), generator=generator(0, 20))[:count] for domain in self.domains)
        domains = tuple(domain.take(index.sort().values) for domain, index in zip(self.domains, drawn, strict=True))
        return replace(self, domains=domains, about=f"{self.about} Here at most {count} images of each domain.")


@dataclass(frozen=True, eq=False)
class ClientData:
    """What one client holds, and nobody else.

    Attributes:
        client: The client's name.
        images, labels: (n, 3, H, W) float32 in [0, 1] and (n,) int64: what it trains on.
        held_out_images, held_out_labels: What it keeps for validation, never trained on.
        classes: K, the number of classes of the federation.
        flip, translate: The augmentations its images allow (see Dataset).
    """

    client: str
    images: Tensor
    labels: Tensor
    held_out_images: Tensor
    held_out_labels: Tensor
    classes: int
    flip: bool = False
    translate: float = 0.0

    def __len__(self) -> int:
        return len(self.images)
