"""Label histogram: what its regressions are chosen by, and how real numbers become shares."""

from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import Fitted
from factories import fitted_once
from sklearn.metrics import r2_score
from torch import Tensor

from fdgpriv.adversary import Adversary
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.statistics.kernel_ridge import KernelRidge
from fdgpriv.tasks.label_shares import as_shares, r2
from fdgpriv.threat import threat

histogram: Any = import_module("fdgpriv.attacks.label_histogram")


@pytest.fixture(scope="module")
def little(tiny: Dataset) -> Fitted:
    """Twelve clients of a dozen images each, two rounds in small batches."""
    return fitted_once(tiny, clients=12, settings={"rounds": "2", "batch_size": "4"})


class Recorded(KernelRidge):
    """Records what each regression is chosen by."""

    calls: list[tuple[Tensor, Tensor, Tensor | None, Any]]

    def __init__(self, inputs: Tensor, targets: Tensor, kernel: Any, groups: Tensor | None = None, loss: Any = None):
        self.calls.append((inputs, targets, groups, loss))
        super().__init__(inputs, targets, kernel, groups, loss)


def of_single_images(
    little: Fitted, role: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[Adversary, Tensor, Tensor, Any]:
    """An adversary of this role; and inputs, groups and loss of its regression on single images."""
    monkeypatch.setattr(histogram, "KernelRidge", type("Ours", (Recorded,), {"calls": (calls := [])}))
    attack = Attack.named("label_histogram").configured({"simulations": 240, "looks": 5, "in_each": 12})
    one = little.evaluator().style_adversaries(threat(role), (1, 5))[0]
    trials = [trial for size in (1, 5) for trial in [t for t in one.trials if t.size == size][:20]]
    attack.infer(one.adversary, [t.by_role["attack"][0].observation for t in trials], torch.Generator())
    single = [call for call in calls if bool((call[1].max(1).values == 1).all())]
    assert 0 < len(single) < len(calls)
    for inputs, _, groups, loss in calls:
        assert (groups is None) == (loss is None) == all(inputs is not call[0] for call in single)
    inputs, _, groups, loss = single[0]
    assert groups is not None
    return one.adversary.with_looks(5, 12), inputs, groups, loss


def test_an_image_is_read_without_any_of_its_artifacts(little: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the regression is chosen by its wrong labels."""
    adversary, inputs, groups, loss = of_single_images(little, "server", monkeypatch)
    every = adversary.practice_images[0]
    assert groups.unique().tolist() == list(range(len(every)))
    assert len(groups) > len(every)  # images are simulated several times
    for group in groups.unique():
        same = inputs[groups == group]
        torch.testing.assert_close(same, same[:1].expand_as(same))
    predicted = torch.tensor([[0.2, 0.3, -1.0], [0.9, 0.1, 0.0], [0.0, 0.0, 0.1], [0.5, 0.4, 0.6]])
    assert float(loss(predicted, torch.eye(3)[[1, 1, 2, 0]])) == pytest.approx(0.5)


@pytest.mark.slow
def test_a_practised_look_is_left_out(little: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    adversary, _, groups, _ = of_single_images(little, "client", monkeypatch)
    assert groups.unique().tolist() == list(range(len(adversary.practice)))
    assert len(adversary.practice) == 1 + 5


def test_real_numbers_become_shares() -> None:
    found = as_shares(torch.tensor([[0.4, -3.0, 0.4], [0.6, 0.25, 0.15], [0.2, 0.5, 0.1]]), torch.tensor([30, 2, 1]))
    assert found.tolist() == [[0.5, 0, 0.5], [pytest.approx(0.5), pytest.approx(0.5), 0], [0, 1, 0]]


def test_r2_is_scikit_learn_s_with_a_jackknife(rng: torch.Generator) -> None:
    true = torch.rand(12, 4, generator=rng).double()
    predicted = true + 0.2 * torch.randn(12, 4, generator=rng)

    def plain(rows: Tensor) -> float:
        return float(r2_score(true[rows].numpy(), predicted[rows].numpy(), multioutput="variance_weighted"))

    every = torch.arange(12)
    without = torch.tensor([plain(every[every != i]) for i in range(12)])
    error = float((11 / 12 * (without - without.mean()).square().sum()).sqrt())
    found = r2(predicted, true)
    assert found.value == pytest.approx(plain(every))
    assert found.ci95 == pytest.approx((plain(every) - 1.96 * error, plain(every) + 1.96 * error), abs=1e-3)
    assert r2(predicted, true[:1].expand(12, -1)).value is None
