"""Containers of labelled images: a domain, a multi-domain dataset, and one client's data."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fdgpriv.data.pixels import FloatImages, joined
from fdgpriv.utils.file_memory import together_in_file
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.suggestions import did_you_mean, same_name
from fdgpriv.utils.user_names import plain


@dataclass(frozen=True, eq=False)
class Domain:
    """Labelled images of one domain.

    Attributes:
        name: The domain, for example ``"sketch"``.
        pixels: The stored images (N, 3, H, W), uint8 in 0 to 255 or float32 in [0, 1].
        labels: (N,) int64 in [0, K).
        clients: (N,) index into the dataset's clients, where its owner has divided it; else None.
        images: The images as float32 in [0, 1]; in memory from their first use on.
    """

    name: str
    pixels: Tensor
    labels: Tensor
    clients: Tensor | None = None

    images = FloatImages("pixels")

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.shape[1] != 3:
            raise ValueError(f"want images (N, 3, H, W), got {tuple(self.pixels.shape)}")
        if self.labels.shape != self.pixels.shape[:1]:
            raise ValueError(f"want one label per image ({len(self.pixels)},), got {tuple(self.labels.shape)}")
        if self.clients is not None and self.clients.shape != self.labels.shape:
            raise ValueError(f"want one client per image ({len(self.pixels)},), got {tuple(self.clients.shape)}")

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """A hash of each image's stored pixels."""
        return tuple(hashlib.sha256(image.numpy()).digest() for image in self.pixels.contiguous())

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, index: Tensor) -> "Domain":
        """The samples at `index` (M,), in that order."""
        clients = None if self.clients is None else self.clients[index]
        return Domain(self.name, self.pixels[index], self.labels[index], clients)

    def part(self, start: int, stop: int) -> "Domain":
        """The samples from `start` to `stop`, as views of the same memory."""
        clients = None if self.clients is None else self.clients[start:stop]
        return Domain(self.name, self.pixels[start:stop], self.labels[start:stop], clients)

    def followed_by(self, other: "Domain") -> "Domain":
        """These samples and then those of `other`, without clients."""
        return Domain(self.name, joined([self.pixels, other.pixels]), torch.cat([self.labels, other.labels]))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A domain generalization benchmark: the same classes in several domains.

    Attributes:
        name: Its name on the command line.
        classes: K class names; a label is an index into them.
        domains: The domains, in the dataset's order.
        default_target: The target domain when the user names none.
        about: Description in one or two sentences, for reports.
        limits: Limits of the conclusions that results on it allow, for reports.
        flip: Whether a horizontal flip keeps the class (true for photographs, false for digits).
        translate: Largest random translation in training, as a fraction of the side.
        whole: The dataset of which `few` made this one.
        sha256: The `digest` of all images as loaded, also where `few` took some of them; None if it was not computed.
        warnings: Faults of the data that its user must know: images that are there twice.
        clients: The names of the clients among which its owner has divided it; empty if it is not divided.
        targets: The only domains that may be targets, which are never sources; empty if each may be, and the others are
            its sources.
    """

    name: str
    classes: tuple[str, ...]
    domains: tuple[Domain, ...]
    default_target: str
    about: str
    limits: str
    flip: bool = False
    translate: float = 0.0
    whole: "Dataset | None" = None
    sha256: str | None = None
    warnings: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def n_sources(self) -> int:
        """Number of source domains."""
        return len(self.domains) - max(1, len(self.targets))

    def target(self, name: str) -> Domain:
        """The target domain called `name`, as `domain` finds it; a ValueError lists those that may be targets."""
        chosen = self.domain(name)
        if self.targets and chosen.name not in self.targets:
            raise ValueError(f"want a target domain of {self.name}: {', '.join(self.targets)}; got {name!r}")
        return chosen

    def sources(self, target: str) -> tuple[Domain, ...]:
        """The source domains of this target domain, in the dataset's order."""
        return tuple(domain for domain in self.domains if domain.name not in (target, *self.targets))

    def clients_of(self, domains: Sequence[Domain]) -> tuple[str, ...]:
        """The names of the clients of these domains, in the dataset's order."""
        numbers = {number for domain in domains if domain.clients is not None for number in domain.clients.tolist()}
        return tuple(name for number, name in enumerate(self.clients) if number in numbers)

    @property
    def image_size(self) -> int:
        """H = W of the images, in pixels."""
        return self.domains[0].pixels.shape[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the domains."""
        return tuple(domain.name for domain in self.domains)

    def domain(self, name: str) -> Domain:
        """The domain called `name`, in any case and as of `plain`; a ValueError lists the known ones."""
        by_name = {plain(domain.name): domain for domain in self.domains}
        match = same_name(plain(name), by_name)
        if match is None:
            suggestion = did_you_mean(plain(name), by_name)
            raise ValueError(f"want a domain of {self.name}: {', '.join(self.names)}; got {name!r}{suggestion}")
        return by_name[match]

    def few(self, count: int) -> "Dataset":
        """A fixed random subset of at most `count` images of each domain, in the original order.

        Raises:
            ValueError: It has no image of a client.
        """
        domains = tuple(domain.take(_random_order(domain)[:count].sort().values) for domain in self.domains)
        if lost := set(self.clients_of(self.domains)) - set(self.clients_of(domains)):
            raise ValueError(
                f"want images of each client among {count} of each domain, got none of {min(lost)}; raise --images"
            )
        about = f"{self.about} Here at most {count} images of each domain."
        return replace(self, domains=domains, about=about, whole=self)

    def left_out(self, name: str, most: int) -> Domain:
        """At most `most` of the images of this domain that `few` left out, in random order."""
        chosen = self.domain(name)
        if self.whole is None:
            return chosen.part(0, 0)
        all_images = self.whole.domain(name)
        return all_images.take(_random_order(all_images)[len(chosen) : len(chosen) + most])


def digest(classes: Sequence[str], domains: Sequence[Domain], clients: Sequence[str] = ()) -> str:
    """SHA-256 of the classes, of the clients if there are any, and of the domains in order, in hexadecimal.

    Hashed are the names of the classes and of the clients, as JSON; then of each domain its name, shape and type of number, as
    JSON, its labels and clients as little-endian int64, and its pixels (N, 3, H, W) in this order.
    """
    hashed = hashlib.sha256(json.dumps(list(classes)).encode())
    if clients:
        hashed.update(json.dumps(list(clients)).encode())
    for domain in domains:
        pixels = domain.pixels.contiguous().numpy()
        hashed.update(json.dumps([domain.name, list(pixels.shape), str(pixels.dtype)]).encode())
        for numbers in (domain.labels, domain.clients):
            if numbers is not None:
                hashed.update(numbers.contiguous().numpy().astype("<i8").data)
        hashed.update(pixels.data)
    return hashed.hexdigest()


def _random_order(domain: Domain) -> Tensor:
    return torch.randperm(len(domain), generator=generator(0, 20))


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's private data.

    Attributes:
        client: The client's name.
        pixels, labels: Training data: (n, 3, H, W), uint8 in 0 to 255 or float32 in [0, 1], and (n,) int64.
        held_out_pixels, held_out_labels: Validation data, never trained on.
        classes: K, the number of classes of the federation.
        flip, translate: The augmentations that keep the class (see Dataset).
        copies: Training data are this many consecutive copies of each image, in different styles.
        images, held_out_images: The images as float32 in [0, 1]; in memory from their first use on. Training uses
            `as_images` on mini-batches of `pixels` instead.
    """

    client: str
    pixels: Tensor
    labels: Tensor
    held_out_pixels: Tensor
    held_out_labels: Tensor
    classes: int
    flip: bool = False
    translate: float = 0.0
    copies: int = 1

    images, held_out_images = FloatImages("pixels"), FloatImages("held_out_pixels")

    def __post_init__(self) -> None:
        for pixels, labels in ((self.pixels, self.labels), (self.held_out_pixels, self.held_out_labels)):
            if len(pixels) != len(labels):
                raise ValueError(f"{self.client}: want a label for each image, got {len(pixels)} and {len(labels)}")

    def copied(self) -> "ClientData":
        """A copy that shares no tensor with these data, large ones in temporary files."""
        tensors = (self.pixels, self.labels, self.held_out_pixels, self.held_out_labels)
        pixels, labels, held_out_pixels, held_out_labels = together_in_file(dict(enumerate(tensors))).values()
        return replace(
            self, pixels=pixels, labels=labels, held_out_pixels=held_out_pixels, held_out_labels=held_out_labels
        )

    def __len__(self) -> int:
        return len(self.pixels)
