"""FINCH: parameter-free clustering by first neighbours.

Independent implementation of the clustering equation. Reference: Sarfraz, Sharma and Stiefelhagen, "Efficient
parameter-free clustering using first neighbor relations", CVPR 2019.
"""

import torch
from torch import Tensor

_BLOCK = 65_536  # columns converted to float64 at once


def cosine(gram: Tensor) -> Tensor:
    """Cosine distances (n, n) from inner products (n, n); a zero row has distance 1 to every row."""
    length = gram.diagonal().clamp_min(0).sqrt()
    scale = torch.where(length > 0, 1 / length, torch.zeros_like(length))
    return 1 - gram * scale * scale[:, None]


def finch(rows: Tensor) -> list[Tensor]:
    """Partitions of rows (n, D) by cosine distance, finest first; each is (n,) cluster numbers by first appearance.

    Each row is joined to its nearest neighbour; the connected components are the clusters. The clusters' means over
    their rows are clustered in the same way, until one cluster would remain or no clusters would merge. Merges are not
    limited by distance, as in PARDON and FPL. Ties go to the first row.

    The means' inner products follow from the rows' inner products, so the rows are read once.
    """
    _check(rows)
    if len(rows) == 1:
        return [torch.zeros(1, dtype=torch.int64)]
    gram = _inner_products(rows)
    partitions = [_connected_components(cosine(gram))]
    while (count := _cluster_count(partitions[-1])) > 1:
        share = torch.nn.functional.one_hot(partitions[-1]).to(gram)
        share = share / share.sum(0)
        coarser = _connected_components(cosine(share.T @ gram @ share))[partitions[-1]]
        if _cluster_count(coarser) in (1, count):
            break
        partitions.append(coarser)
        if _cluster_count(coarser) == count - 1:
            break
    return partitions


def compact(rows: Tensor) -> Tensor:
    """Rows (n, min(n, D)) with the same inner products as rows (n, D), so every subset has the same clusters."""
    if rows.shape[-1] <= len(rows):
        return rows
    _check(rows)
    values, vectors = torch.linalg.eigh(_inner_products(rows))
    compacted: Tensor = vectors * values.clamp_min(0).sqrt()
    return compacted


def _check(rows: Tensor) -> None:
    if rows.ndim != 2 or len(rows) < 1:
        raise ValueError(f"want rows (n, D) with n >= 1, got {tuple(rows.shape)}")
    if not bool(torch.isfinite(rows).all()):
        raise ValueError("want finite rows to cluster, got NaN or an infinity")


def _inner_products(rows: Tensor) -> Tensor:
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for block in rows.split(_BLOCK, dim=1):
        columns = block.double()
        gram += columns @ columns.T
    return gram.cpu()


def _connected_components(distance: Tensor) -> Tensor:
    """Connected components (n,) of the nearest-neighbour graph, numbered by first appearance."""
    n = len(distance)
    nearest = distance.clone().fill_diagonal_(torch.inf).argmin(1).tolist()
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in enumerate(nearest):
        parent[root(i)] = root(j)
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(root(i), len(numbers)) for i in range(n)])


def _cluster_count(partition: Tensor) -> int:
    return int(partition.max()) + 1
