"""How a dataset becomes a federation: which sample goes to which client, and what the evaluator keeps apart.

Where attacks are wanted, a share of each source domain is set aside as public images: adversaries may hold them
(`auxiliary`), and shadow clients are made of some of them where a domain has few clients. The rest is dealt to the clients,
every sample once, by one of the partitions below; each client holds out a share for validation.
Every draw comes from one generator seeded by (seed, 1), so that a seed names one federation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fdgpriv.data.dataset import ClientData, Dataset, Domain
from fdgpriv.federation.setup import partition_named
from fdgpriv.federation.shadow_clients import shadow_clients
from fdgpriv.utils.seeds import generator

Deal = list[list[Tensor]]  # by domain, by client: indices into the domain
AUXILIARY_SHARE = 0.25
HELD_OUT_SHARE = 0.1
_DRAWS = 1000


@dataclass(frozen=True)
class ImageCounts:
    """Numbers of images: clients train on them, hold them out, adversaries may hold them, shadow clients hold them."""

    train: int
    held_out: int
    public: int
    shadow: int


@dataclass(frozen=True, eq=False)
class Population:
    """All that the evaluator knows; a method sees one LocalData of it at a time, an attack only what a view grants.

    Attributes:
        dataset: What it was made from.
        target: The domain left out.
        sources: The names of the source domains.
        clients: By name, in federation order.
        domain_of: By client or shadow, (n,) index into `sources` of each training sample.
        shadows: Clients that take no part in training: drawn to have more units to measure on.
        auxiliary: By source domain, the public images that adversaries may hold.
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
        """Index into `sources` of the domain that most of this client's samples have."""
        return int(self.domain_of[client].bincount(minlength=len(self.sources)).argmax())

    def data(self, client: str) -> ClientData:
        """What this client or shadow holds."""
        return self.clients[client] if client in self.clients else self.shadows[client]

    def images(self, name: str) -> ImageCounts:
        """What the images of the source domain `name` are used for."""
        d, whole = self.sources.index(name), len(self.dataset.domain(name))
        train = sum(int((self.domain_of[client] == d).sum()) for client in self.clients)
        mine = [data for shadow, data in self.shadows.items() if self.main_domain(shadow) == d]
        shadow = sum(len(data) + len(data.held_out_images) for data in mine)
        public = len(self.auxiliary[name])
        return ImageCounts(train=train, held_out=whole - train - public - shadow, public=public, shadow=shadow)

    def pool(self, names: tuple[str, ...]) -> Tensor:
        """(P, 3, H, W): all training images of these in one row, then all that they hold out; the same tensor each time."""
        if names not in self._pools:
            held = [self.data(name) for name in names]
            self._pools[names] = torch.cat([d.images for d in held] + [d.held_out_images for d in held])
        return self._pools[names]


def populate(
    dataset: Dataset, target: str, partition: str, clients: int, seed: int, attacked: bool = True
) -> Population:
    """The population that trains on every domain of `dataset` but `target`.

    Args:
        dataset: The benchmark.
        target: The domain left out.
        partition: ``single``, ``dirichlet:ALPHA``, ``heterogeneity:LAMBDA`` or ``domains:D``.
        clients: How many.
        seed: Of the run.
        attacked: Without attacks no image is public and there are no shadows: clients hold everything.

    Raises:
        ValueError: The target, the partition or the number of clients cannot be.
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
    deal = partitioner(partition)([len(domain) for domain in private], clients, rng)
    local = {}
    for i in range(clients):
        parts = [domain.take(by_client[i]) for domain, by_client in zip(private, deal, strict=True)]
        local[f"client-{i:02d}"] = _hold(f"client-{i:02d}", parts, dataset, rng)
    names = list(local)
    if all(sum(len(by_client[i]) > 0 for by_client in deal) == 1 for i in range(clients)):
        for d, domain in enumerate(public):
            sizes = [len(part) for part in deal[d] if len(part)]
            public[d], apart = shadow_clients(domain, sizes, len(dataset.classes))
            for part in apart:
                name = f"shadow-{len(local) - clients:02d}"
                parts = [part if other == d else part.part(0, 0) for other in range(len(sources))]
                local[name] = _hold(name, parts, dataset, rng)
    return Population(
        dataset=dataset,
        target=left_out,
        sources=tuple(domain.name for domain in sources),
        clients={name: local[name][0] for name in names},
        domain_of={name: domains for name, (_, domains) in local.items()},
        shadows={name: data for name, (data, _) in local.items() if name not in names},
        auxiliary={domain.name: domain for domain in public},
    )


def _hold(name: str, parts: list[Domain], dataset: Dataset, rng: torch.Generator) -> tuple[ClientData, Tensor]:
    """What the client `name` holds of the source domains' `parts`, and the domain of each of its training images."""
    images = torch.cat([part.images for part in parts])
    labels = torch.cat([part.labels for part in parts])
    domains = torch.cat([torch.full((len(part),), d) for d, part in enumerate(parts)])
    if len(images) < 2:
        raise ValueError(f"{name} would hold {len(images)} images: want at least 2; ask for fewer clients")
    out, kept = set_aside(len(images), rng)
    data = ClientData(
        client=name,
        images=images[kept],
        labels=labels[kept],
        held_out_images=images[out],
        held_out_labels=labels[out],
        classes=len(dataset.classes),
        flip=dataset.flip,
        translate=dataset.translate,
    )
    return data, domains[kept]


def set_aside(count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Which of its `count` images a client holds out, and which it trains on, each in random order."""
    out, kept = torch.randperm(count, generator=rng).tensor_split([held_out(count)])
    return out, kept


def held_out(count: int) -> int:
    """How many of its images a client that has so many holds out."""
    return max(1, int(HELD_OUT_SHARE * count))


def held_out_beside(trained_on: int) -> int:
    """How many a client holds out that trains on so many; of two numbers that can be, the smaller."""
    count = trained_on + 1
    while count - held_out(count) < trained_on:
        count += 1
    return count - trained_on


Partitioner = Callable[[list[int], int, torch.Generator], Deal]


def partitioner(spec: str) -> Partitioner:
    """The partition that the command line names; a ValueError lists the known ones."""
    name, value = partition_named(spec)
    if name == "dirichlet":
        return lambda sizes, clients, rng: dirichlet(sizes, clients, rng, value)
    if name == "heterogeneity":
        return lambda sizes, clients, rng: heterogeneity(sizes, clients, rng, value)
    if name == "domains":
        return lambda sizes, clients, rng: domains_per_client(sizes, clients, rng, int(value))
    return single


def single(sizes: list[int], clients: int, rng: torch.Generator) -> Deal:
    """Each client has one domain; clients are dealt to domains in turn, a domain's samples evenly to its clients."""
    if clients < len(sizes):
        raise ValueError(f"want at least one client per source domain ({len(sizes)}), got {clients}")
    owner = [i * len(sizes) // clients for i in range(clients)]
    deal: Deal = []
    for domain, size in enumerate(sizes):
        parts = iter(torch.randperm(size, generator=rng).tensor_split(owner.count(domain)))
        deal.append([next(parts) if owner[i] == domain else torch.empty(0, dtype=torch.int64) for i in range(clients)])
    return deal


def dirichlet(sizes: list[int], clients: int, rng: torch.Generator, alpha: float) -> Deal:
    """Each domain is dealt over all clients in shares from Dirichlet(alpha), drawn anew until each client has two."""
    if sum(sizes) < 2 * clients:
        raise ValueError(f"want at least 2 samples per client, got {sum(sizes)} for {clients} clients")
    draws = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
    for _ in range(_DRAWS):
        shares = draws.dirichlet([alpha] * clients, size=len(sizes))
        cuts = np.rint(shares.cumsum(axis=1)[:, :-1] * np.array(sizes)[:, None]).astype(int)
        counts = sum(np.diff(cut, prepend=0, append=size) for cut, size in zip(cuts, sizes, strict=True))
        if np.min(counts) >= 2:
            return [
                list(torch.randperm(size, generator=rng).tensor_split(cut.tolist()))
                for cut, size in zip(cuts, sizes, strict=True)
            ]
    raise ValueError(
        f"no draw of Dirichlet({alpha}) in {_DRAWS} gave each of {clients} clients 2 samples: ask for fewer clients"
    )


def heterogeneity(sizes: list[int], clients: int, rng: torch.Generator, share: float) -> Deal:
    """PARDON's split: client i has (1 - share) / k of its main domain and share / N of every domain.

    Main domains go to clients one at a time, each to the domain with most samples per client so far; 0 gives one
    domain per client, 1 an even mixture. Fractions are floored, the remainder goes to the first clients that hold any.
    """
    if clients < len(sizes):
        raise ValueError(f"want at least one client per source domain ({len(sizes)}), got {clients}")
    shards = [1] * len(sizes)
    while sum(shards) < clients:
        shards[max(range(len(sizes)), key=lambda d: sizes[d] / shards[d])] += 1
    main = [domain for domain, count in enumerate(shards) for _ in range(count)]
    deal: Deal = []
    for domain, size in enumerate(sizes):
        wanted = [(1 - share) / shards[domain] * (main[i] == domain) + share / clients for i in range(clients)]
        counts = [int(size * fraction + 1e-9) for fraction in wanted]
        holders = [i for i in range(clients) if wanted[i] > 0]
        for extra in range(size - sum(counts)):
            counts[holders[extra % len(holders)]] += 1
        deal.append(list(torch.randperm(size, generator=rng).split(counts)))
    return deal


def domains_per_client(sizes: list[int], clients: int, rng: torch.Generator, per_client: int) -> Deal:
    """hFedF's split: each client has exactly `per_client` domains, dealt round-robin in a shuffled order (Alg. 5)."""
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
    turns = [(d, part) for d in domain_order for part in range(counts[d])]
    pieces = [torch.randperm(n, generator=rng).tensor_split(k) for n, k in zip(sizes, counts, strict=True)]
    deal: Deal = [[torch.empty(0, dtype=torch.int64) for _ in range(clients)] for _ in sizes]
    for turn, (domain, part) in enumerate(turns):
        deal[domain][client_order[turn % clients]] = pieces[domain][part]
    return deal
