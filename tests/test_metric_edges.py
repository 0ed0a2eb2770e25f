"""Rates, areas, shares and ranks against plain formulas at their edges: 0, 1, ties, one item, one class."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fdgpriv.tasks.class_label import ClassLabel
from fdgpriv.tasks.label_shares import r2
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.membership import tpr_at_fpr
from fdgpriv.tasks.roc import area


@pytest.mark.parametrize(
    ("members", "others"),
    [([1.0], [0.0]), ([0.0], [1.0]), ([0.5], [0.5]), ([1.0, 1.0, 0.0], [1.0, 0.0]), ([0.0] * 3, [0.0] * 4)],
)
def test_area_and_rates(members: list[float], others: list[float]) -> None:
    plain = np.mean([(m > o) + 0.5 * (m == o) for m in members for o in others])
    assert area(torch.tensor([members]).double(), torch.tensor([others]).double()).item() == pytest.approx(plain)
    many = torch.tensor(others).repeat(400)
    accused = [t for t in {*members, *others, math.inf} if (many >= t).double().mean() <= 0.01]
    best = max(float(np.mean([m >= t for m in members])) for t in accused)
    assert tpr_at_fpr(torch.tensor(members), many, 0.01, len(many)).value == pytest.approx(best)
    assert tpr_at_fpr(torch.tensor(members), many, 0.01, 299).value is None


def test_r2_of_shares() -> None:
    true = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]).double()
    assert r2(true, true).value == 1.0
    assert r2(true.mean(0).expand(3, 2), true).value == pytest.approx(0.0)
    assert r2(1 - true, true).value == pytest.approx(1 - 4.0)  # 1 - sum (2 d)^2 / sum d^2
    assert r2(true[:2], true[:2]).value is None
    assert r2(true, true[:1].expand(3, 2)).value is None


def test_balanced_accuracy() -> None:
    for labels, answers, expected in (
        ([0, 0, 0, 1], [0, 0, 0, 0], 0.5), ([1], [1], 1.0), ([1], [0], 0.0), ([2, 2], [2, 0], 0.5),
    ):  # fmt: skip
        truths: Any = [SimpleNamespace(labels=torch.tensor([label])) for label in labels]
        scores = ClassLabel().score([torch.eye(3)[answer] for answer in answers], truths)
        assert float(scores.mean()) == pytest.approx(expected)


def test_ranks_count_ties_half() -> None:
    truths: Any = [SimpleNamespace(earlier_index=1)] * 3
    ties = [torch.zeros(3), torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])]
    assert LinkedClient().score(ties, truths).tolist() == [0.0, 1.0, 0.0]
    mrr = LinkedClient().details(ties, truths)["mrr"].tolist()
    assert mrr == pytest.approx([1 / 2, 1.0, 1 / 1.5])
