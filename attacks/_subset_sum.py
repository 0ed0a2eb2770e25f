"""Finds the few of many vectors whose mean is known: local search that exchanges two members at a time.

Means over m images of T known functions are T equations about which images these are. Where they are exact, the right ones
are recognised by an error of rounding only; other sets of m images miss them by far.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

_STARTS = 20
_MOST_SWEEPS = 30  # from one start
_CHANCE = 0.01  # expected number of other sets within the tolerance, above which none is recognised


class Subset(NamedTuple):
    """The members (m,), indices, and the root mean square of the difference between their mean and the known one, in standard
    deviations of the vectors' entries.
    """

    members: Tensor
    error: float


def subset_of_mean(vectors: Tensor, mean: Tensor, likely: Tensor, count: int, tolerance: float) -> Subset | None:
    """The `count` of the vectors with this mean; None where none is found, or where others may have it by chance.

    From a start, two members at a time are exchanged for the two vectors that help most, until none help. The first start
    has the most likely vectors, others are drawn.

    Args:
        vectors: (N, T) float64.
        mean: (T,) of the members.
        likely: (N,) weights, positive, with which starts are drawn.
        count: m, from 2 to N.
        tolerance: The error up to which a set has this mean.
    """
    deviations = (vectors - mean) / vectors.std(0).clamp_min(1e-12)  # the members' have the sum 0
    if _others_by_chance(deviations, count, tolerance) > _CHANCE:
        return None
    products = deviations @ deviations.T
    squares = products.diagonal()
    of_pairs = (squares[:, None] + squares + 2 * products).fill_diagonal_(torch.inf).float()  # |a + b|^2; half the time
    rng = torch.Generator().manual_seed(0)
    for start in range(_STARTS):
        members = torch.multinomial(likely, count, generator=rng) if start else likely.topk(count).indices
        subset = _exchanged(deviations, of_pairs, members)
        if subset.error <= tolerance:
            return subset
    return None


def _exchanged(deviations: Tensor, of_pairs: Tensor, members: Tensor) -> Subset:
    """The members after all exchanges that help, from these."""
    count, least = len(members), float(deviations[members].sum(0).square().sum())
    for _ in range(_MOST_SWEEPS):
        before = least
        for place in torch.combinations(torch.arange(count), 2):
            rest = members[~torch.isin(torch.arange(count), place)]
            of_rest = deviations[rest].sum(0)
            along = 2 * (deviations @ of_rest).float()
            position = int((of_pairs + along[:, None]).add_(along).argmin())
            exchanged = torch.cat([rest, torch.tensor(divmod(position, len(deviations)))])
            squared = float(deviations[exchanged].sum(0).square().sum())
            if squared < least * (1 - 1e-6):
                members, least = exchanged, squared
        if least == before:
            break
    return Subset(members, (least / deviations.shape[1]) ** 0.5 / count)


def _others_by_chance(deviations: Tensor, count: int, tolerance: float) -> float:
    """An upper bound of the expected number of sets of `count` vectors whose mean is within the tolerance by chance.

    Along each principal axis the sum of a set is about normal; it is within r of 0 with probability at most r times the
    width 2 times the density 1 / sqrt(2 pi) at its mean, over its standard deviation.
    """
    sets = math.lgamma(len(deviations) + 1) - math.lgamma(count + 1) - math.lgamma(len(deviations) - count + 1)
    variances = count * torch.linalg.eigvalsh(torch.atleast_2d(torch.cov(deviations.T))).clamp_min(1e-300)
    radius = tolerance * count * deviations.shape[1] ** 0.5
    within = (2 * radius / (2 * math.pi * variances).sqrt()).clamp_max(1.0).log().sum()
    return math.exp(min(700.0, sets + float(within)))
