"""Partitions a dataset into clients, held-out data, public images and shadow clients.

For attacks, a share of each source domain is reserved as public images. The rest is partitioned among the clients by
one of the schemes of `fdgpriv.federation.schemes`; each client holds out a share for validation. Public images, and those
that the dataset leaves out, are divided among adversaries and shadow clients (see `fdgpriv.federation.reserve`). All
random numbers come from one generator seeded by (seed, 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

import torch
from torch import Tensor

from fdgpriv.data.dataset import ClientData, Dataset, Domain
from fdgpriv.data.pixels import as_images, joined
from fdgpriv.federation.held_out import SHARE, held_out_split
from fdgpriv.federation.reserve import UNITS_PER_DOMAIN, reserve, third_party_images
from fdgpriv.federation.schemes import Assignment, partitioner
from fdgpriv.federation.weights import Weights, effective
from fdgpriv.utils.file_memory import in_file
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.user_names import shadow_names

AUXILIARY_SHARE = 0.25


@dataclass(frozen=True)
class ImageCounts:
    """Numbers of images by use: clients' training and held-out data, public images, shadow clients, none."""

    train: int
    held_out: int
    public: int
    shadow: int
    unused: int


@dataclass(frozen=True, eq=False)
class Population:
    """The partitioned dataset, known to the evaluator only.

    Attributes:
        dataset: The dataset.
        target: The target domain.
        sources: The names of the source domains.
        clients: By name, in federation order.
        domain_of: By client or shadow, (n,) index into `sources` of each training sample.
        shadows: Shadow clients, which do not train; additional units of evaluation.
        auxiliary: By source domain, the public images of adversaries.
        other_domain: The images of the target domain that third parties hold.
        private_counts: By source domain, the number of images that clients train on or hold out.
    """

    dataset: Dataset
    target: Domain
    sources: tuple[str, ...]
    clients: dict[str, ClientData]
    domain_of: dict[str, Tensor]
    shadows: dict[str, ClientData]
    auxiliary: dict[str, Domain]
    other_domain: Domain
    private_counts: dict[str, int]
    _pools: dict[tuple[str, ...], Tensor] = field(default_factory=dict, init=False)

    def weights(self, weights: Weights | None) -> Weights | None:
        """The clients' effective weights: ``uniform`` also by samples, if all have about as many images."""
        return effective(weights, [len(data) for data in self.clients.values()])

    def main_domain(self, client: str) -> int:
        """Index into `sources` of this client's most frequent domain."""
        return int(self.domain_of[client].bincount(minlength=len(self.sources)).argmax())

    def data(self, client: str) -> ClientData:
        """The data of this client or shadow client."""
        return self.clients[client] if client in self.clients else self.shadows[client]

    def images(self, name: str) -> ImageCounts:
        """Numbers of images of the source domain `name` by use."""
        d, domain_size = self.sources.index(name), len((self.dataset.whole or self.dataset).domain(name))
        train = sum(int((self.domain_of[client] == d).sum()) for client in self.clients)
        shadows = [data for shadow, data in self.shadows.items() if self.main_domain(shadow) == d]
        shadow = sum(len(data) + len(data.held_out_labels) for data in shadows)
        public, held_out = len(self.auxiliary[name]), self.private_counts[name] - train
        unused = domain_size - train - held_out - public - shadow
        return ImageCounts(train=train, held_out=held_out, public=public, shadow=shadow, unused=unused)

    def pool(self, names: tuple[str, ...]) -> Tensor:
        """(P, 3, H, W): all images of these clients, in the order of `pool_order`; cached."""
        if names not in self._pools:
            data = list(map(self.data, names))
            pixels = joined([d.pixels for d in data] + [d.held_out_pixels for d in data])
            self._pools[names] = in_file(as_images(pixels[self.pool_order(names)]))
        return self._pools[names]

    def pool_order(self, names: tuple[str, ...]) -> Tensor:
        """(P,): the pool's random order, as indices into all training images followed by all held-out images.

        Its seed is the checksum of the first client's images, which adversaries do not know.
        """
        data = [self.data(name) for name in names]
        seeds = [crc32(client.pixels.contiguous().numpy().tobytes()) for client in data[:1]]
        return torch.randperm(sum(len(d) + len(d.held_out_labels) for d in data), generator=generator(61, *seeds))


def populate(
    dataset: Dataset,
    target: str,
    partition: str,
    clients: int,
    seed: int,
    attacked: bool = True,
    auxiliary: int | None = None,
    units_per_domain: int = UNITS_PER_DOMAIN,
    held_out: float = SHARE,
) -> Population:
    """Partitions the source domains of `dataset`, by default all but `target`.

    Args:
        dataset: The dataset.
        target: The target domain.
        partition: ``single``, ``dirichlet:ALPHA``, ``heterogeneity:LAMBDA``, ``domains:D``, ``given`` or ``flwr:NAME``.
        clients: Number of clients; of ``given`` that of the dataset's clients.
        seed: Of the run.
        attacked: If false, no image is public and there are no shadows: clients get all images.
        auxiliary: Number of images of each domain that adversaries hold; None for a quarter of each source domain, minus
            the images of shadow clients, and for all images of the target domain.
        units_per_domain: Desired number of clients and shadow clients of each domain.
        held_out: Share of its images that a client holds out for validation.

    Raises:
        ValueError: The target, the partition, the number of clients or of auxiliary images is invalid.
    """
    unseen = dataset.target(target)
    if clients < 1:
        raise ValueError(f"want at least 1 client, got {clients}")
    rng = generator(seed, 1)
    sources = dataset.sources(target)
    _check_given(dataset, sources, attacked)
    divided = [_public_and_private(domain, AUXILIARY_SHARE if attacked else 0.0, rng) for domain in sources]
    public, private = [domain for domain, _ in divided], [domain for _, domain in divided]
    assignment = partitioner(partition)(private, clients, rng)
    client_parts = _client_parts(dataset, private, assignment)
    shadow_parts: dict[str, list[Domain]] = {}
    if attacked:
        public, of_shadows = _reserved(dataset, public, assignment, auxiliary, units_per_domain)
        shadow_parts = dict(zip(shadow_names(len(of_shadows), client_parts), of_shadows, strict=True))
    local = {name: client_data(name, parts, dataset, held_out, rng) for name, parts in client_parts.items()}
    shadows = {name: client_data(name, parts, dataset, held_out, rng) for name, parts in shadow_parts.items()}
    return Population(
        dataset=dataset,
        target=unseen,
        sources=tuple(domain.name for domain in sources),
        clients={name: data for name, (data, _) in local.items()},
        domain_of={name: domains for name, (_, domains) in (local | shadows).items()},
        shadows={name: data for name, (data, _) in shadows.items()},
        auxiliary={domain.name: domain for domain in public},
        other_domain=third_party_images(unseen, dataset.left_out(target, auxiliary or 0), auxiliary, rng),
        private_counts={domain.name: len(domain) for domain in private},
    )


def _client_parts(dataset: Dataset, private: Sequence[Domain], assignment: Assignment) -> dict[str, list[Domain]]:
    """By client, its part of each source domain; clients without a name in the dataset are numbered."""
    names = dataset.clients_of(private) or [f"client-{i:02d}" for i in range(len(assignment[0]))]
    return {
        name: [domain.take(by_client[i]) for domain, by_client in zip(private, assignment, strict=True)]
        for i, name in enumerate(names)
    }


def _check_given(dataset: Dataset, sources: Sequence[Domain], attacked: bool) -> None:
    """Raises ValueError if a client of a divided dataset has too few images."""
    minimum, why = (4, "public, held out, and two to train on") if attacked else (2, "held out, and to train on")
    for domain in sources:
        counts = [] if domain.clients is None else domain.clients.bincount().tolist()
        for name, count in zip(dataset.clients, counts, strict=False):
            if 0 < count < minimum:
                raise ValueError(
                    f"want at least {minimum} images of each client ({why}), got {count} of {name} in {domain.name}"
                )


def _public_and_private(domain: Domain, share: float, rng: torch.Generator) -> tuple[Domain, Domain]:
    """The domain's images in random order, divided into a `share` that is public and the rest."""
    order = torch.randperm(len(domain), generator=rng)
    is_public = _is_public(domain, order, share)
    return domain.take(order[is_public]), domain.take(order[~is_public])


def _reserved(
    dataset: Dataset, public: Sequence[Domain], assignment: Assignment, auxiliary: int | None, units_per_domain: int
) -> tuple[list[Domain], list[list[Domain]]]:
    """Divides public images between adversaries and shadow clients.

    Args:
        dataset: The dataset, which may have images that the federation does not use.
        public: By domain, the images that no client holds.
        assignment: By domain, the images of each client.
        auxiliary, units_per_domain: As of `populate`.

    Returns:
        By domain, the images of adversaries. For each shadow client, its part of each domain, all of them empty but one;
        there are no shadow clients if a client has images of several domains.
    """
    is_single_domain = all(sum(len(part) > 0 for part in parts) == 1 for parts in zip(*assignment, strict=True))
    of_adversaries: list[Domain] = []
    shadows: list[list[Domain]] = []
    for d, domain in enumerate(public):
        sizes = [len(part) for part in assignment[d] if len(part)] if is_single_domain else []
        spare = dataset.left_out(domain.name, (auxiliary or 0) + units_per_domain * max(sizes, default=0))
        remaining, shadow_images = reserve(domain, spare, sizes, len(dataset.classes), auxiliary, units_per_domain)
        of_adversaries.append(remaining)
        for images in shadow_images:
            shadows.append([images if other == d else images.part(0, 0) for other in range(len(public))])
    return of_adversaries, shadows


def _is_public(domain: Domain, order: Tensor, share: float) -> Tensor:
    """Whether each image in this order (N,) is public: the first `share`, of each client if the dataset has clients."""
    owners = torch.zeros_like(order) if domain.clients is None else domain.clients[order]
    is_public = torch.zeros(len(order), dtype=torch.bool)
    for owner in owners.unique():
        positions = (owners == owner).nonzero().flatten()
        is_public[positions[: int(share * len(positions))]] = True
    return is_public


def client_data(
    name: str, parts: list[Domain], dataset: Dataset, held_out: float, rng: torch.Generator
) -> tuple[ClientData, Tensor]:
    """The data of the client `name` from its parts of the source domains, and each training image's domain."""
    pixels = joined([part.pixels for part in parts])
    labels = torch.cat([part.labels for part in parts])
    domains = torch.cat([torch.full((len(part),), d) for d, part in enumerate(parts)])
    if len(pixels) < 2:
        raise ValueError(f"want at least 2 images per client, got {len(pixels)} for {name}; use fewer clients")
    held_out_index, training = held_out_split(len(pixels), held_out, rng)
    data = ClientData(
        client=name,
        pixels=pixels[training],
        labels=labels[training],
        held_out_pixels=pixels[held_out_index],
        held_out_labels=labels[held_out_index],
        classes=len(dataset.classes),
        flip=dataset.flip,
        translate=dataset.translate,
    )
    return data, domains[training]
