"""FINCH: hand-worked partitions, its clustering equation by a plain loop, and the reference package where it is there."""

import math

import pytest
import torch
from factories import seeded, unit
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fdgpriv.utils import finch as module
from fdgpriv.utils.finch import compact, finch

ANGLES = (0, 2, 10, 13, 80, 83, 100, 104)
SIXTEEN = (0, 1, 4, 5.5, 20, 21, 24, 25.5, 100, 101, 104, 105.5, 120, 121, 124, 125.5)


def cloud(n: int, dim: int, seed: int) -> Tensor:
    """Points around a few centres, of lengths of their own."""
    rng = seeded(seed)
    centres = 3 * torch.randn(4, dim, generator=rng)
    points = centres[torch.randint(4, (n,), generator=rng)] + torch.randn(n, dim, generator=rng)
    return points * (0.5 + torch.rand(n, 1, generator=rng))


QUICK = settings(max_examples=40)


def plain(rows: Tensor) -> list[list[int]]:
    """The definition to the letter, with Python's numbers: nested loops, A_ij, a walk through it, means of the rows."""

    def apart(a: list[float], b: list[float]) -> float:
        return 1 - math.fsum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    def components(points: list[list[float]]) -> list[int]:
        n = len(points)
        if n == 1:
            return [0]
        first = [min((j for j in range(n) if j != i), key=lambda j: apart(points[i], points[j])) for i in range(n)]
        labels, number = [-1] * n, 0
        for start in range(n):
            if labels[start] >= 0:
                continue
            waiting = [start]
            while waiting:
                i = waiting.pop()
                labels[i] = number
                for j in range(n):
                    if labels[j] < 0 and (j == first[i] or i == first[j] or first[i] == first[j]):
                        waiting.append(j)
            number += 1
        return labels

    data = [[float(v) for v in row] for row in rows]
    found = [components(data)]
    while True:
        last = found[-1]
        count = max(last) + 1
        if count == 1:
            return found
        means = []
        for k in range(count):
            mine = [row for row, label in zip(data, last, strict=True) if label == k]
            means.append([math.fsum(column) / len(mine) for column in zip(*mine, strict=True)])
        merged = components(means)
        left = max(merged) + 1
        if left == 1 or left == count:
            return found
        found.append([merged[label] for label in last])
        if left == count - 1:
            return found


def lists(partitions: list[Tensor]) -> list[list[int]]:
    return [partition.tolist() for partition in partitions]


# Partitions worked out by hand


@pytest.mark.parametrize("scale", [torch.ones(8), torch.arange(1.0, 9.0)], ids=["unit", "scaled"])
def test_eight_directions_make_pairs_and_fours(scale: Tensor) -> None:
    assert lists(finch(unit(*ANGLES) * scale[:, None])) == [[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1]]


def test_three_groups_of_directions_are_one_partition() -> None:
    assert lists(finch(unit(0, 1, 10, 11.5, 30, 31, 33))) == [[0, 0, 1, 1, 2, 2, 2]]


def test_sixteen_directions_make_three_partitions() -> None:
    found = lists(finch(unit(*SIXTEEN)))
    assert found == [[i // 2 for i in range(16)], [i // 4 for i in range(16)], [i // 8 for i in range(16)]]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_up_to_three_rows_are_always_one_cluster(n: int) -> None:
    for seed in range(20):
        assert lists(finch(cloud(n, 4, seed))) == [[0] * n]


# The definition


@QUICK
@given(st.integers(1, 24), st.integers(2, 5), st.integers(0, 10_000))
def test_it_is_the_definition(n: int, dim: int, seed: int) -> None:
    rows = cloud(n, dim, seed)
    assert lists(finch(rows)) == plain(rows)


def test_wide_rows_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = cloud(20, 50, 0)
    whole = lists(finch(rows))
    monkeypatch.setattr(module, "_BLOCK", 7)
    assert lists(finch(rows)) == whole


@pytest.mark.parametrize(("n", "dim"), [(1, 5), (6, 40), (25, 300), (9, 3)])
def test_compact_rows_are_clustered_as_wide_ones(n: int, dim: int) -> None:
    rows = cloud(n, dim, n)
    narrow = compact(rows)
    assert narrow.shape == (n, min(n, dim))
    torch.testing.assert_close(narrow.double() @ narrow.double().T, rows.double() @ rows.double().T)
    some = torch.arange(0, n, 2)
    assert lists(finch(narrow)) == lists(finch(rows))
    assert lists(finch(narrow[some])) == lists(finch(rows[some]))


# What it is given


def test_equal_and_zero_rows_are_clustered() -> None:
    assert lists(finch(torch.ones(5, 3))) == [[0] * 5]
    assert lists(finch(torch.zeros(4, 3))) == [[0] * 4]


def test_it_leaves_the_rows_as_they_were() -> None:
    rows = cloud(9, 3, 0)
    before = rows.clone()
    finch(rows)
    assert torch.equal(rows, before)


@pytest.mark.parametrize("rows", [torch.zeros(0, 3), torch.zeros(3), torch.zeros(2, 3, 4)])
def test_it_wants_rows(rows: Tensor) -> None:
    with pytest.raises(ValueError, match=r"want rows \(n, D\) with n >= 1"):
        finch(rows)


def test_rows_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="want finite rows"):
        finch(torch.tensor([[1.0, torch.nan], [0.0, 1.0]]))


# The reference implementation, where it is installed (PyPI: finch-clust)


def test_it_agrees_with_the_reference_package() -> None:
    reference = pytest.importorskip("finch")
    for seed in range(30):
        rows = cloud(4 + 2 * seed, 3 + seed % 9, seed)
        theirs = reference.FINCH(rows.numpy(), distance="cosine", ensure_early_exit=False, verbose=False)[0]
        ours = finch(rows)
        assert len(ours) == theirs.shape[1]
        for i, partition in enumerate(ours):
            column = torch.from_numpy(theirs[:, i])
            assert torch.equal(partition[:, None] == partition, column[:, None] == column)
