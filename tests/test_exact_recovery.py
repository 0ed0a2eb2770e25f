"""Closed forms: exact on made-up numbers, and no further than they promise."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted, fit
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Truth
from fdgpriv.exam.marks import Marks, examine
from fdgpriv.federation import Dataset, generator
from fdgpriv.finch import finch
from fdgpriv.roles import Attack
from fdgpriv.subjects import Holding, StyleCraft
from fdgpriv.threat import threat

algebra: Any = import_module("fdgpriv.attacks._algebra")
interpolation: Any = import_module("fdgpriv.methods._interpolation")
importance: Any = import_module("fdgpriv.methods._importance")


def made_up(n: int, length: int = 40) -> Tensor:
    return torch.rand(n, length, generator=torch.Generator().manual_seed(n), dtype=torch.float64) + 0.1


def off(values: Tensor, found: Tensor) -> float:
    """The largest distance of a value (n, C) to the nearer of those found for its channel (2, C)."""
    return max(
        min(abs(float(row[c] - found[k, c])) for k in range(2)) for row in values for c in range(values.shape[1])
    )


@pytest.mark.parametrize("n", [1, 2])
def test_mean_and_variance_of_two_are_the_two(n: int) -> None:
    values = made_up(n)
    found = algebra.two_values(values.mean(0), values.var(0, correction=0))
    assert off(values, found) < 1e-6
    assert torch.equal(found.sort(0).values, found)


@pytest.mark.parametrize("n", [3, 5, 20])
def test_mean_and_variance_of_more_are_not_enough(n: int) -> None:
    values = made_up(n)
    found = algebra.two_values(values.mean(0), values.var(0, correction=0))
    assert off(values, found) > 0.1
    torch.testing.assert_close(found.mean(0), values.mean(0))  # two values that have the moments
    torch.testing.assert_close(found.var(0, correction=0), values.var(0, correction=0))


def shared_by(rows: Tensor) -> Tensor:
    """What PARDON's server makes of the styles (N, 2C)."""
    styles = [
        StyleStatistics(
            client=f"client-{i}",
            round=0,
            mean=row[: len(row) // 2],
            std=row[len(row) // 2 :],
            mean_var=torch.empty(0),
            std_var=torch.empty(0),
            behind="client",
            at="layer1",
            rule="paper",
        )
        for i, row in enumerate(rows)
    ]
    made = interpolation.interpolation_style(styles)
    return torch.cat([made.mean, made.std])


def test_of_two_clients_each_computes_the_other_s_style() -> None:
    """METHODS 8b and test vector 14: s_other = 2 S_g - s_own."""
    rows = made_up(2)
    found = algebra.mean_of_others(shared_by(rows), rows[0], 2)
    assert float((found - rows[1]).abs().max()) < 1e-6
    torch.testing.assert_close(found, 2 * shared_by(rows) - rows[0])


def test_of_three_clients_each_computes_the_mean_of_the_others() -> None:
    rows = made_up(3)
    assert len(finch(rows)[0].unique()) == 1
    found = algebra.mean_of_others(shared_by(rows), rows[2], 3)
    assert float((found - rows[:2].mean(0)).abs().max()) < 1e-6
    assert float((found - rows[0]).abs().max()) > 0.1  # and neither of them


def test_of_many_clients_in_clusters_the_mean_of_the_others_is_not_told() -> None:
    rows = torch.cat([made_up(4) + 3 * torch.eye(40)[i] for i in range(3)])
    assert len(finch(rows)[0].unique()) > 1
    found = algebra.mean_of_others(shared_by(rows), rows[0], len(rows))
    assert float((found - rows[1:].mean(0)).abs().max()) > 0.1


def test_of_one_client_there_is_no_other() -> None:
    with pytest.raises(ValueError, match="want at least 2 clients, got 1"):
        algebra.mean_of_others(torch.ones(2), torch.ones(2), 1)


def test_of_two_clients_importances_the_sum_tells_the_other_s() -> None:
    ours, theirs, third = made_up(3)
    total = importance.summed([{"w": ours}, {"w": theirs}])["w"]
    assert float((algebra.other_term(total, ours) - theirs).abs().max()) < 1e-6
    with_third = importance.summed([{"w": ours}, {"w": theirs}, {"w": third}])["w"]
    assert float((algebra.other_term(with_third, ours) - theirs).abs().max()) > 0.1


# The attack


@pytest.fixture(scope="module")
def twelve(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=12)


def examined(fitted: Fitted) -> dict[int | None, Marks]:
    proctor = fitted.proctor()
    proctor.per_client = {1: 2, 2: 2}
    subject = proctor.subject(StyleStatistics.kind)
    sittings = proctor.sittings(subject, threat("server"), (1, 2, None), reconstruction=False, alone=True)
    return examine(Attack.named("exact_recovery")(), sittings, (1, 2, None), generator(0))[0]


def test_a_style_of_one_or_two_images_is_theirs(twelve: Fitted) -> None:
    marks = examined(twelve)
    for size in (1, 2):
        assert max(marks[size].headline["attack"]) < 1e-4
        assert set(marks[size].details["recovered"]["attack"]) == {1.0}
        for control in ("noise", "mean_image", "random_style", "other_client", "other_domain"):
            assert min(marks[size].headline[control]) > 0.01
    assert min(marks[None].headline["attack"]) > 0.01


def test_what_an_image_would_share_alone_is_known_to_who_asks_for_it_only(twelve: Fitted) -> None:
    proctor = twelve.proctor()
    subject = proctor.subject(StyleStatistics.kind)

    def truths(alone: bool) -> list[Truth]:
        (sitting,) = proctor.sittings(subject, threat("server"), (2,), reconstruction=False, alone=alone)
        return [item.truth for item in sitting.items]

    assert all(truth.alone.numel() == 0 for truth in truths(False))
    (view,) = [s.view for s in proctor.sittings(subject, threat("server"), (2,), reconstruction=False)]
    for truth in truths(True)[::4]:
        craft = view.craft(StyleCraft)
        mean, std = craft.parts(Holding(truth.images, truth.labels), torch.arange(2))
        np.testing.assert_allclose(truth.alone[:, : 2 * mean.shape[1]], torch.cat([mean, std], 1), atol=1e-5)
