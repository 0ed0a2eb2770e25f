"""Closed forms: exact on made-up numbers, and no further than they promise."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted
from factories import fitted_once
from factories_core import style
from torch import Tensor

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.tasks.exact_styles import ExactStyles
from fdgpriv.threat import threat
from fdgpriv.utils.finch import finch
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.trial_scores import TrialScores

recovery: Any = import_module("fdgpriv.attacks.exact_recovery")
interpolation: Any = import_module("fdgpriv.methods._interpolation")
importance: Any = import_module("fdgpriv.methods._importance")


def made_up(n: int, length: int = 40) -> Tensor:
    return torch.rand(n, length, generator=torch.Generator().manual_seed(n), dtype=torch.float64) + 0.1


def off(values: Tensor, found: Tensor) -> float:
    """The largest distance of a value (n, C) to the nearer of those found for its channel (2, C)."""
    return max(
        min(abs(float(row[c] - found[k, c])) for k in range(2)) for row in values for c in range(values.shape[1])
    )


def test_moments_of_two_images_are_the_two() -> None:
    for n in (1, 2, 3, 5, 20):
        values = made_up(n)
        found = recovery.two_values(values.mean(0), values.var(0, correction=0))
        assert torch.equal(found.sort(0).values, found)
        if n <= 2:
            assert off(values, found) < 1e-6
        else:
            assert off(values, found) > 0.1
            torch.testing.assert_close(found.mean(0), values.mean(0))  # two values that have the moments
            torch.testing.assert_close(found.var(0, correction=0), values.var(0, correction=0))


def shared_by(rows: Tensor) -> Tensor:
    """What PARDON's server makes of the styles (N, 2C)."""
    nothing = torch.empty(0)
    styles = [
        style(f"client-{i}", mean=row.chunk(2)[0], std=row.chunk(2)[1], mean_var=nothing, std_var=nothing, rule="paper")
        for i, row in enumerate(rows)
    ]
    made = interpolation.interpolation_style(styles)
    return torch.cat([made.mean, made.std])


def test_two_clients_compute_each_other_s_style() -> None:
    for n in (2, 3):
        rows = made_up(n)
        assert len(finch(rows)[0].unique()) == 1
        found = (n * shared_by(rows) - rows[0]) / (n - 1)
        assert float((found - rows[1:].mean(0)).abs().max()) < 1e-6


def test_clusters_hide_the_mean_of_the_others() -> None:
    rows = torch.cat([made_up(4) + 3 * torch.eye(40)[i] for i in range(3)])
    assert len(finch(rows)[0].unique()) > 1
    found = (len(rows) * shared_by(rows) - rows[0]) / (len(rows) - 1)
    assert float((found - rows[1:].mean(0)).abs().max()) > 0.1


def test_a_sum_of_importances_reveals_the_other_s() -> None:
    ours, theirs, third = made_up(3)
    total = importance.summed([{"w": ours}, {"w": theirs}])["w"]
    assert float((total - ours - theirs).abs().max()) < 1e-6
    with_third = importance.summed([{"w": ours}, {"w": theirs}, {"w": third}])["w"]
    assert float((with_third - ours - theirs).abs().max()) > 0.1


@pytest.fixture(scope="module")
def twelve(tiny: Dataset) -> Fitted:
    return fitted_once(tiny, clients=12)


def evaluated(fitted: Fitted) -> dict[int | None, TrialScores]:
    evaluator = fitted.evaluator()
    evaluator.per_client = {1: 2, 2: 2}
    target = evaluator.series(StyleStatistics.kind)
    adversaries = evaluator.adversaries(target, threat("server"), (1, 2, None), ExactStyles())
    return evaluate_trials(Attack.named("exact_recovery")(), adversaries, (1, 2, None), generator(0))[0]


def test_a_style_of_one_or_two_images_is_theirs(twelve: Fitted) -> None:
    scores = evaluated(twelve)
    for size in (1, 2):
        assert max(scores[size].headline["attack"]) < 1e-4
        assert set(scores[size].details["recovered"]["attack"]) == {1.0}
        for control in ("noise", "mean_image", "random_style", "other_client", "other_domain"):
            assert min(scores[size].headline[control]) > 0.01
    assert min(scores[None].headline["attack"]) > 0.01


def test_contributions_are_held_for_tasks_that_need_them(twelve: Fitted) -> None:
    evaluator = twelve.evaluator()
    target = evaluator.series(StyleStatistics.kind)
    (asked,) = evaluator.adversaries(target, threat("server"), (2,), ExactStyles())
    (other,) = evaluator.adversaries(target, threat("server"), (2,))
    assert all(trial.truth.contributions.numel() == 0 for trial in other.trials)
    simulator = asked.adversary.simulator(StyleSimulator)
    for truth in [trial.truth for trial in asked.trials[::4]]:
        mean, std = simulator.parts(ClientSample(ClientImages(truth.images, truth.labels), torch.arange(2)))
        np.testing.assert_allclose(truth.contributions[:, : 2 * mean.shape[1]], torch.cat([mean, std], 1), atol=1e-5)
