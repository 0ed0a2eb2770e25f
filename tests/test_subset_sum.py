"""Subsets with a known mean: as all subsets tried, none where none has it, and none where chance would find others."""

from importlib import import_module
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

subset_sum: Any = import_module("fdgpriv.attacks._subset_sum")
COUNT, VECTORS, DIMENSIONS = 3, 24, 8


def drawn(rng: torch.Generator, count: int = COUNT) -> tuple[Tensor, Tensor, list[int]]:
    """Vectors (N, T), the mean of some of them, and which these are."""
    vectors = torch.randn(VECTORS, DIMENSIONS, generator=rng, dtype=torch.float64) * torch.logspace(-3, 2, DIMENSIONS)
    members = torch.randperm(VECTORS, generator=rng)[:count].sort().values
    return vectors, vectors[members].mean(0), members.tolist()


def test_it_is_the_nearest_of_all_subsets(rng: torch.Generator) -> None:
    for _ in range(20):
        vectors, mean, members = drawn(rng)
        errors = {
            subset: float(((vectors[list(subset)].mean(0) - mean) / vectors.std(0)).square().mean().sqrt())
            for subset in combinations(range(VECTORS), COUNT)
        }
        best = min(errors, key=lambda subset: errors[subset])
        subset = subset_sum.subset_of_mean(vectors, mean + 1e-9, torch.ones(VECTORS), COUNT, 1e-4)
        assert sorted(subset.members.tolist()) == list(best) == members
        assert subset.error < 1e-4


@pytest.mark.parametrize("count", [2, 7])
def test_other_numbers_of_members(count: int, rng: torch.Generator) -> None:
    vectors, mean, members = drawn(rng, count)
    subset = subset_sum.subset_of_mean(vectors, mean, torch.ones(VECTORS), count, 1e-4)
    assert sorted(subset.members.tolist()) == members


def test_nothing_where_no_subset_has_the_mean(rng: torch.Generator) -> None:
    vectors, mean, _ = drawn(rng)
    noisy = mean + 0.1 * vectors.std(0) * torch.randn(DIMENSIONS, generator=rng)
    assert subset_sum.subset_of_mean(vectors, noisy, torch.ones(VECTORS), COUNT, 1e-4) is None


def test_nothing_where_other_subsets_have_it_by_chance(rng: torch.Generator) -> None:
    vectors, mean, _ = drawn(rng)
    assert subset_sum.subset_of_mean(vectors[:, :1], mean[:1], torch.ones(VECTORS), COUNT, 1e-3) is None


def test_the_expected_number_is_an_upper_bound(rng: torch.Generator) -> None:
    """Of sets within the tolerance in truth, counted one by one."""
    tolerance, counted, bounds = 0.1, [], []
    for _ in range(40):
        deviations = torch.randn(16, 2, generator=rng, dtype=torch.float64)
        sums = [deviations[list(subset)].mean(0) for subset in combinations(range(16), COUNT)]
        counted.append(sum(float(mean.square().mean().sqrt()) <= tolerance for mean in sums))
        bounds.append(subset_sum._others_by_chance(deviations, COUNT, tolerance))
    assert 0 < sum(counted) <= sum(bounds) < 10 * sum(counted)
