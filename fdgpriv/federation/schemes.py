"""Assigns the images of each domain to clients, by one of the partition schemes."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fdgpriv.data.dataset import Domain
from fdgpriv.federation.setup import FLOWER, GIVEN, partition_named

Assignment = list[list[Tensor]]  # by domain, by client: indices into the domain
_ATTEMPTS = 1000

Partitioner = Callable[[Sequence[Domain], int, torch.Generator], Assignment]


def partitioner(spec: str) -> Partitioner:
    """The partition scheme of this specification; a ValueError lists the known ones."""
    name, value = partition_named(spec)
    if name == GIVEN:
        return given
    if name == FLOWER:
        from fdgpriv.federation.flower_partition import flower_partition  # needs an extra

        return lambda domains, clients, rng: flower_partition(spec.partition(":")[2], domains, clients, rng)
    by_size: dict[str, Callable[[list[int], int, torch.Generator], Assignment]] = {
        "single": single,
        "dirichlet": lambda sizes, clients, rng: dirichlet(sizes, clients, rng, value),
        "heterogeneity": lambda sizes, clients, rng: heterogeneity(sizes, clients, rng, value),
        "domains": lambda sizes, clients, rng: domains_per_client(sizes, clients, rng, int(value)),
    }
    return lambda domains, clients, rng: by_size[name]([len(domain) for domain in domains], clients, rng)


def given(domains: Sequence[Domain], clients: int, rng: torch.Generator) -> Assignment:
    """The dataset's assignment of images to clients, in the order of its clients."""
    owners_by_domain = [domain.clients for domain in domains if domain.clients is not None]
    if len(owners_by_domain) < len(domains):
        raise ValueError(f"want images that are divided among clients, got {domains[0].name} without clients")
    numbers = torch.cat(owners_by_domain).unique().tolist()
    if len(numbers) != clients:
        raise ValueError(f"--clients: want the {len(numbers)} clients of the data, or no number; got {clients}")
    return [[(owners == number).nonzero().flatten() for number in numbers] for owners in owners_by_domain]


def single(sizes: list[int], clients: int, rng: torch.Generator) -> Assignment:
    """One domain per client; numbers of clients per domain differ by at most 1; a domain's clients get equal parts."""
    if clients < len(sizes):
        raise ValueError(f"want at least one client per source domain ({len(sizes)}), got {clients}")
    domain_of = [i * len(sizes) // clients for i in range(clients)]
    assignment: Assignment = []
    for domain, size in enumerate(sizes):
        parts = iter(torch.randperm(size, generator=rng).tensor_split(domain_of.count(domain)))
        assignment.append(
            [next(parts) if domain_of[i] == domain else torch.empty(0, dtype=torch.int64) for i in range(clients)]
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
        fractions = [(1 - share) / shards[domain] * (main[i] == domain) + share / clients for i in range(clients)]
        counts = [int(size * fraction + 1e-9) for fraction in fractions]
        holders = [i for i in range(clients) if fractions[i] > 0]
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
