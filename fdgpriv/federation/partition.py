"""Partitions a dataset into clients, held-out data, public images and shadow clients.

For attacks, a share of each source domain is reserved as public images: auxiliary data of adversaries, and data of
shadow clients where a domain has few clients. The rest is partitioned among the clients by one of the schemes below;
each client holds out a share for validation. All random numbers come from one generator seeded by (seed, 1).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fdgpriv.data.dataset import ClientData, Dataset, Domain
from fdgpriv.data.pixels import as_images, joined
from fdgpriv.federation.setup import partition_named
from fdgpriv.federation.shadow_clients import shadow_clients
from fdgpriv.utils.file_memory import in_file
from fdgpriv.utils.seeds import generator

Assignment = list[list[Tensor]]  # by domain, by client: indices into the domain
AUXILIARY_SHARE = 0.25
HELD_OUT_SHARE = 0.1
_ATTEMPTS = 1000


@dataclass(frozen=True)
class ImageCounts:
    """Numbers of images by use: clients' training and held-out data, public images, shadow clients."""

    train: int
    held_out: int
    public: int
    shadow: int


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
    """

    dataset: Dataset
    target: Domain
    sources: tuple[str, ...]
    clients: dict[str, ClientData]
    domain_of: dict[str, Tensor]
    shadows: dict[str, ClientData]
    auxiliary: dict[str, Domain]
    _pools: dict[tuple[str, ...], Tensor] = field(default_factory=dict, init=False)

    def main_domain(self, client: str) -> int:
        """Index into `sources` of this client's most frequent domain."""
        return int(self.domain_of[client].bincount(minlength=len(self.sources)).argmax())

    def data(self, client: str) -> ClientData:
        """The data of this client or shadow client."""
        return self.clients[client] if client in self.clients else self.shadows[client]

    def images(self, name: str) -> ImageCounts:
        """Numbers of images of the source domain `name` by use."""
        d, whole = self.sources.index(name), len(self.dataset.domain(name))
        train = sum(int((self.domain_of[client] == d).sum()) for client in self.clients)
        shadows = [data for shadow, data in self.shadows.items() if self.main_domain(shadow) == d]
        shadow = sum(len(data) + len(data.held_out_labels) for data in shadows)
        public = len(self.auxiliary[name])
        return ImageCounts(train=train, held_out=whole - train - public - shadow, public=public, shadow=shadow)

    def pool(self, names: tuple[str, ...]) -> Tensor:
        """(P, 3, H, W): all training images of these clients, then all their held-out images; cached."""
        if names not in self._pools:
            data = [self.data(name) for name in names]
            pixels = joined([d.pixels for d in data] + [d.held_out_pixels for d in data])
            self._pools[names] = in_file(as_images(pixels))
        return self._pools[names]


def populate(
    dataset: Dataset, target: str, partition: str, clients: int, seed: int, attacked: bool = True
) -> Population:
    """Partitions every domain of `dataset` but `target`.

    Args:
        dataset: The dataset.
        target: The target domain.
        partition: ``single``, ``dirichlet:ALPHA``, ``heterogeneity:LAMBDA`` or ``domains:D``.
        clients: Number of clients.
        seed: Of the run.
        attacked: If false, no image is public and there are no shadows: clients get all images.

    Raises:
        ValueError: The target, the partition or the number of clients is invalid.
    """
    left_out = dataset.domain(target)
    if clients < 1:
        raise ValueError(f"want at least 1 client, got {clients}")
    rng = generator(seed, 1)
    sources = [domain for domain in dataset.domains if domain.name != target]
    public, private = [], []
    for domain in sources:
        order = torch.randperm(len(domain), generator=rng)
        cut = int(AUXILIARY_SHARE * len(domain)) if attacked else 0
        public.append(domain.take(order[:cut]))
        private.append(domain.take(order[cut:]))
    assignment = partitioner(partition)([len(domain) for domain in private], clients, rng)
    local = {}
    for i in range(clients):
        parts = [domain.take(by_client[i]) for domain, by_client in zip(private, assignment, strict=True)]
        local[f"client-{i:02d}"] = _client_data(f"client-{i:02d}", parts, dataset, rng)
    names = list(local)
    if all(sum(len(by_client[i]) > 0 for by_client in assignment) == 1 for i in range(clients)):
        for d, domain in enumerate(public):
            sizes = [len(part) for part in assignment[d] if len(part)]
            public[d], shadow_parts = shadow_clients(domain, sizes, len(dataset.classes))
            for part in shadow_parts:
                name = f"shadow-{len(local) - clients:02d}"
                parts = [part if other == d else part.part(0, 0) for other in range(len(sources))]
                local[name] = _client_data(name, parts, dataset, rng)
    return Population(
        dataset=dataset,
        target=left_out,
        sources=tuple(domain.name for domain in sources),
        clients={name: local[name][0] for name in names},
        domain_of={name: domains for name, (_, domains) in local.items()},
        shadows={name: data for name, (data, _) in local.items() if name not in names},
        auxiliary={domain.name: domain for domain in public},
    )


def _client_data(name: str, parts: list[Domain], dataset: Dataset, rng: torch.Generator) -> tuple[ClientData, Tensor]:
    """The data of the client `name` from its parts of the source domains, and each training image's domain."""
    pixels = joined([part.pixels for part in parts])
    labels = torch.cat([part.labels for part in parts])
    domains = torch.cat([torch.full((len(part),), d) for d, part in enumerate(parts)])
    if len(pixels) < 2:
        raise ValueError(f"want at least 2 images per client, got {len(pixels)} for {name}; use fewer clients")
    out, kept = held_out_split(len(pixels), rng)
    data = ClientData(
        client=name,
        pixels=pixels[kept],
        labels=labels[kept],
        held_out_pixels=pixels[out],
        held_out_labels=labels[out],
        classes=len(dataset.classes),
        flip=dataset.flip,
        translate=dataset.translate,
    )
    return data, domains[kept]


def held_out_split(count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of the images that a client with `count` images holds out and trains on, each in random order."""
    out, kept = torch.randperm(count, generator=rng).tensor_split([held_out(count)])
    return out, kept


def held_out(count: int) -> int:
    """Number of images that a client with `count` images holds out."""
    return max(1, int(HELD_OUT_SHARE * count))


def held_out_for(trained_on: int) -> int:
    """Number of images held out by a client that trains on `trained_on` images; the smaller if two are possible."""
    count = trained_on + 1
    while count - held_out(count) < trained_on:
        count += 1
    return count - trained_on


Partitioner = Callable[[list[int], int, torch.Generator], Assignment]


def partitioner(spec: str) -> Partitioner:
    """The partition scheme of this specification; a ValueError lists the known ones."""
    name, value = partition_named(spec)
    if name == "dirichlet":
        return lambda sizes, clients, rng: dirichlet(sizes, clients, rng, value)
    if name == "heterogeneity":
        return lambda sizes, clients, rng: heterogeneity(sizes, clients, rng, value)
    if name == "domains":
        return lambda sizes, clients, rng: domains_per_client(sizes, clients, rng, int(value))
    return single


def single(sizes: list[int], clients: int, rng: torch.Generator) -> Assignment:
    """Each client has one domain; domains have equally many clients, up to one, which share its samples evenly."""
    if clients < len(sizes):
        raise ValueError(f"want at least one client per source domain ({len(sizes)}), got {clients}")
    owner = [i * len(sizes) // clients for i in range(clients)]
    assignment: Assignment = []
    for domain, size in enumerate(sizes):
        parts = iter(torch.randperm(size, generator=rng).tensor_split(owner.count(domain)))
        assignment.append(
            [next(parts) if owner[i] == domain else torch.empty(0, dtype=torch.int64) for i in range(clients)]
        )
    return assignment


def dirichlet(sizes: list[int], clients: int, rng: torch.Generator, alpha: float) -> Assignment:
    """Divides each domain over all clients in Dirichlet(alpha) shares, resampled until each client has 2 samples."""
    if sum(sizes) < 2 * clients:
        raise ValueError(f"want at least 2 samples per client, got {sum(sizes)} for {clients} clients")
    numpy_rng = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
    for _ in range(_ATTEMPTS):
        shares = numpy_rng.dirichlet([alpha] * clients, size=len(sizes))
        cuts = np.rint(shares.cumsum(axis=1)[:, :-1] * np.array(sizes)[:, None]).astype(int)
        counts = sum(np.diff(cut, prepend=0, append=size) for cut, size in zip(cuts, sizes, strict=True))
        if np.min(counts) >= 2:
            return [
                list(torch.randperm(size, generator=rng).tensor_split(cut.tolist()))
                for cut, size in zip(cuts, sizes, strict=True)
            ]
    raise ValueError(
        f"want at least 2 samples for each of {clients} clients, got fewer in {_ATTEMPTS} draws of Dirichlet({alpha}); "
        "use fewer clients"
    )


def heterogeneity(sizes: list[int], clients: int, rng: torch.Generator, share: float) -> Assignment:
    """PARDON's split: client i has (1 - share) / k of its main domain, which k clients share, and share / N of every one.

    Clients are assigned one at a time to the main domain with the most samples per client so far. Share 0 gives one
    domain per client, 1 an even mixture. Counts are rounded down; the remainder goes to the domain's first clients.
    """
    if clients < len(sizes):
        raise ValueError(f"want at least one client per source domain ({len(sizes)}), got {clients}")
    shards = [1] * len(sizes)
    while sum(shards) < clients:
        shards[max(range(len(sizes)), key=lambda d: sizes[d] / shards[d])] += 1
    main = [domain for domain, count in enumerate(shards) for _ in range(count)]
    assignment: Assignment = []
    for domain, size in enumerate(sizes):
        wanted = [(1 - share) / shards[domain] * (main[i] == domain) + share / clients for i in range(clients)]
        counts = [int(size * fraction + 1e-9) for fraction in wanted]
        holders = [i for i in range(clients) if wanted[i] > 0]
        for extra in range(size - sum(counts)):
            counts[holders[extra % len(holders)]] += 1
        assignment.append(list(torch.randperm(size, generator=rng).split(counts)))
    return assignment


def domains_per_client(sizes: list[int], clients: int, rng: torch.Generator, per_client: int) -> Assignment:
    """hFedF's split (Alg. 5): each client has exactly `per_client` domains, assigned round-robin in shuffled order."""
    if per_client > len(sizes):
        raise ValueError(f"want at most {len(sizes)} domains per client, got {per_client}")
    total = clients * per_client
    if total < len(sizes):
        raise ValueError(f"want clients x domains per client >= {len(sizes)} source domains, got {total}")
    parts, extra = divmod(total, len(sizes))
    largest = sorted(range(len(sizes)), key=lambda d: -sizes[d])[:extra]
    counts = [parts + (d in largest) for d in range(len(sizes))]
    client_order = torch.randperm(clients, generator=rng).tolist()
    domain_order = torch.randperm(len(sizes), generator=rng).tolist()
    slots = [(d, part) for d in domain_order for part in range(counts[d])]
    pieces = [torch.randperm(n, generator=rng).tensor_split(k) for n, k in zip(sizes, counts, strict=True)]
    assignment: Assignment = [[torch.empty(0, dtype=torch.int64) for _ in range(clients)] for _ in sizes]
    for i, (domain, part) in enumerate(slots):
        assignment[domain][client_order[i % clients]] = pieces[domain][part]
    return assignment
