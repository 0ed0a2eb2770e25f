"""Membership in an average of styles: the likelihood ratio against its closed-form power."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted, fit
from scipy.stats import multivariate_normal, norm
from torch import Tensor

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.scores import Scores, evaluate_trials
from fdgpriv.tasks.roc import area
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

averages: Any = import_module("fdgpriv.attacks._averages")

D = 16


def test_a_density_is_scipy_s(rng: torch.Generator) -> None:
    root = torch.randn(D, D, generator=rng).double()
    covariance, spread = root @ root.T / D + torch.eye(D), torch.rand(D, generator=rng) + 0.5
    rest = torch.randn(5, D, generator=rng)
    found = averages.CentredGaussian(covariance, spread).log_density(rest)
    unit = spread.double().sqrt()
    whole = (covariance + 1e-6 * torch.eye(D)) * unit[:, None] * unit
    assert found.numpy() == pytest.approx(multivariate_normal(cov=whole.numpy()).logpdf(rest.numpy()), rel=1e-4)


def worlds(n: int, trials: int, noise: float, seed: int = 0) -> tuple[float, float]:
    """AUC of the ratio over averages with and without x, and what the best test reaches at equal covariances.

    That is Phi(d / sqrt 2) with d the distance of the two means in units of the spread, averaged over x.
    """
    rng = generator(seed)
    root = torch.randn(D, D, generator=rng) / D**0.5 + torch.eye(D)
    center, covariance = torch.randn(D, generator=rng), (root @ root.T).double()
    unit = torch.ones(D)
    added = noise**2 * torch.eye(D, dtype=torch.float64)
    test = averages.PooledTest(
        center[None],
        averages.CentredGaussian(covariance * (n - 1) / n**2 + added, unit),
        averages.CentredGaussian(covariance / n + added, unit),
    )
    areas, power = [], []
    for _ in range(40):
        x = center + root @ torch.randn(D, generator=rng)

        def average(count: int) -> Tensor:
            return count * center + count**0.5 * (torch.randn(trials, D, generator=rng) @ root.T)

        jitter = noise * torch.randn(2, trials, D, generator=rng)
        inside, out = (average(n - 1) + x) / n + jitter[0], average(n) / n + jitter[1]
        scores = torch.stack([test.log_ratio(artifact, x[None], n)[0] for artifact in torch.cat([inside, out])])
        areas.append(float(area(scores[None, :trials], scores[None, trials:])))
        shift = (x - center).double() / n
        d = float((shift @ torch.linalg.solve(covariance / n + added, shift)).sqrt())
        power.append(float(norm.cdf(d / 2**0.5)))
    return float(np.mean(areas)), float(np.mean(power))


@pytest.mark.parametrize(("n", "noise"), [(20, 0.0), (100, 0.0), (100, 0.05), (1000, 0.05)])
def test_the_ratio_has_the_power_of_the_best_test(n: int, noise: float) -> None:
    found, best = worlds(n, 60, noise)
    assert found == pytest.approx(best, abs=0.04)


def test_power_falls_with_the_number_of_images_and_is_whole_for_one() -> None:
    found = [worlds(n, 10, 0.0)[0] for n in (1, 2, 5, 20, 100)]
    assert found[0] == 1
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.75


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 100, 1000])
def test_power_to_a_hundredth(n: int) -> None:
    found, best = worlds(n, 600, 0.0)
    assert found == pytest.approx(best, abs=0.015)


@pytest.fixture(scope="module")
def little(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=12)


@pytest.fixture(scope="module")
def scores(little: Fitted) -> dict[int | None, Scores]:
    adversaries = little.evaluator().style_adversaries(threat("server"), (1, 2, 5, None))
    return evaluate_trials(
        Attack.named("style_membership").configured({"simulations": 60}), adversaries, (), generator(2)
    )[0]


def test_a_single_image_s_style_gives_it_away_and_more_images_hide_it(scores: dict[int | None, Scores]) -> None:
    areas = [float(np.mean(scores[size].headline["attack"])) for size in (1, 2, 5, None)]
    assert areas[0] == 1
    assert areas == sorted(areas, reverse=True)
    assert areas[1] > 0.8


def test_another_client_s_style_says_nothing_of_membership(scores: dict[int | None, Scores]) -> None:
    """Targets of a domain have their few non-members in common, so that all may lie off 0.5 together."""
    for size in (1, 2, 5):
        assert abs(np.mean(scores[size].headline["other_client"]) - 0.5) < 0.1
        assert abs(np.mean(scores[size].headline["noise"]) - 0.5) < 0.04
