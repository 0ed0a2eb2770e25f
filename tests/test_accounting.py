"""Epsilon proved: sensitivities, the accountants against formulas and dp-accounting, and the guarantee in words."""

import itertools
import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from conftest import mostly_slow
from scipy import integrate, stats

from fdgpriv.privacy import accounting, poisson, sensitivity
from fdgpriv.privacy.adjacency import Adjacency
from fdgpriv.privacy.wording import in_words

DELTA = 1e-5
ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# Sensitivity


def test_replacements_move_a_mean_no_further(rng: np.random.Generator) -> None:
    n, clip = 7, 3.0
    farthest = 0.0
    for _ in range(500):
        vectors = rng.normal(size=(n + 1, 4)) * rng.exponential(4, size=(n + 1, 1))
        vectors *= np.minimum(1, clip / np.linalg.norm(vectors, axis=1, keepdims=True))
        farthest = max(farthest, float(np.linalg.norm(vectors[:n].mean(0) - vectors[1:].mean(0))))
    opposite = np.zeros((n, 4))
    opposite[0, 0] = clip
    reached = float(np.linalg.norm(opposite.mean(0) - (-opposite).mean(0)))
    assert farthest <= sensitivity.mean_replace_one(clip, n) == pytest.approx(reached)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_neighbours_move_a_sum_no_further(norm: int, adjacency: Adjacency, rng: np.random.Generator) -> None:
    """In the L1 norm, for Laplace noise, and in the L2 norm, for Gaussian noise."""
    n, clip = 5, 2.0
    bound = sensitivity.mean_sensitivity(clip, n, adjacency)
    assert bound == {ADD: 0.4, REPLACE: 0.8}[adjacency]
    farthest = 0.0
    for _ in range(300):
        one, other = rng.normal(size=(2, 3)) * rng.exponential(4, size=(2, 1))
        one, other = (v * min(1.0, clip / np.linalg.norm(v, norm)) for v in (one, other))
        change = one if adjacency is ADD else one - other
        farthest = max(farthest, float(np.linalg.norm(change, norm)) / n)
    assert 0.8 * bound < farthest <= bound * (1 + 1e-12)


def test_sensitivities() -> None:
    assert sensitivity.whole_vector(3.0) == 6.0
    ones = np.ones(16)
    assert sensitivity.l1_of_l2(float(np.linalg.norm(ones)), 16) == pytest.approx(np.abs(ones).sum())
    with pytest.raises(ValueError, match="want a clipping norm C > 0"):
        sensitivity.whole_vector(0.0)
    with pytest.raises(ValueError, match="want n a whole number"):
        sensitivity.mean_replace_one(1.0, 0)


# Gaussian noise


def test_epsilon_of_gaussian_noise() -> None:
    for z, epsilon in ((0.5, 9.997), (1, 4.377), (2, 1.993), (4, 0.926), (8, 0.434)):
        exact = accounting.gdp_epsilon(1 / z, DELTA)
        assert exact == pytest.approx(epsilon, abs=5e-4)
        assert accounting.noise_multiplier(exact, DELTA) == pytest.approx(z)
        assert exact <= poisson.rdp_epsilon(z, DELTA) <= 1.2 * exact


def test_delta_is_the_hockey_stick_of_two_gaussians() -> None:
    for epsilon, mu in ((0.0, 0.5), (0.5, 0.5), (1.0, 1.0), (3.0, 1.3)):

        def excess(x: float, epsilon: float = epsilon, mu: float = mu) -> float:
            return max(0.0, float(stats.norm.pdf(x, mu)) - math.exp(epsilon) * float(stats.norm.pdf(x)))

        slow, _ = integrate.quad(excess, -12, 14, limit=500, points=[epsilon / mu + mu / 2])
        assert accounting.gdp_delta(epsilon, mu) == pytest.approx(slow, rel=1e-6)


def test_rounds_compose() -> None:
    assert accounting.noise_multiplier(1.0, DELTA, 50) == pytest.approx(
        math.sqrt(50) * accounting.noise_multiplier(1.0, DELTA)
    )


def test_calibrated_noise_is_the_least_that_keeps_it() -> None:
    for epsilon, delta in itertools.product((0.01, 1.0, 8.0, 200.0), (1e-12, 1e-5, 0.3)):
        mu = 1 / accounting.noise_multiplier(epsilon, delta)
        assert accounting.gdp_delta(epsilon, mu) <= delta < accounting.gdp_delta(epsilon, mu * (1 + 1e-6))


# Poisson sampling


SAMPLED = [(1.0, 0.01, 1000), (1.0, 0.1, 100), (2.0, 0.5, 10), (0.5, 0.02, 100), (4.0, 1.0, 16)]


def test_the_renyi_bound_is_its_formula() -> None:
    z, releases = 3.0, 20
    orders = np.linspace(1.001, 60, 200_000)
    formula = orders * releases / (2 * z * z) - (np.log(DELTA) + np.log(orders)) / (orders - 1)
    formula += np.log((orders - 1) / orders)
    assert poisson.rdp_epsilon(z, DELTA, releases) == pytest.approx(formula.min(), rel=1e-3)
    assert poisson.rdp_epsilon(z, DELTA, releases, sample_rate=0.1) < 0.3 * formula.min()


prv_epsilon = cache(poisson.prv_epsilon)  # takes long; two tests ask for the same


@pytest.mark.parametrize(("z", "sample_rate", "steps"), SAMPLED)
def test_prv_is_tighter_than_renyi(z: float, sample_rate: float, steps: int) -> None:
    exact = prv_epsilon(z, DELTA, steps, sample_rate)
    assert exact < poisson.rdp_epsilon(z, DELTA, steps, sample_rate) < 1.3 * exact
    if sample_rate == 1:
        assert 0 <= exact - accounting.gdp_epsilon(math.sqrt(steps) / z, DELTA) < 0.02


def test_one_sampled_step_is_its_hockey_stick() -> None:
    """delta(eps) of (1 - q) N(0, 1) + q N(1/z, 1) against N(0, 1), the larger of both directions, by integration."""
    z, q = 1.0, 0.2
    epsilon = poisson.prv_epsilon(z, DELTA, 1, q)

    def density(x: float) -> float:
        return (1 - q) * float(stats.norm.pdf(x)) + q * float(stats.norm.pdf(x, 1 / z))

    def delta(epsilon: float) -> float:
        sides = (
            lambda x: max(0.0, density(x) - math.exp(epsilon) * float(stats.norm.pdf(x))),
            lambda x: max(0.0, float(stats.norm.pdf(x)) - math.exp(epsilon) * density(x)),
        )
        return max(integrate.quad(side, -10, 12, limit=2000, epsabs=1e-12)[0] for side in sides)

    assert delta(epsilon) < DELTA < delta(epsilon - 0.02)


@pytest.mark.parametrize(
    ("epsilon", "sample_rate", "steps"),
    mostly_slow([(4.0, 0.01, 1000), (1.0, 0.1, 50), (0.1, 0.01, 100)], [(1.0, 0.1, 50)]),
)
def test_sampled_noise_meets_its_target(epsilon: float, sample_rate: float, steps: int) -> None:
    z = poisson.poisson_noise_multiplier(epsilon, DELTA, steps, sample_rate)
    spent = poisson.prv_epsilon(z, DELTA, steps, sample_rate)
    assert epsilon - min(0.02, 0.01 * epsilon) <= spent <= epsilon
    assert z < accounting.noise_multiplier(epsilon, DELTA, steps)  # sampling helps


# Laplace noise


def test_laplace_noise_composes_by_adding(rng: np.random.Generator) -> None:
    scale = accounting.laplace_scale(2.0, 0.5, releases=8)
    assert scale == 2.0
    releases = rng.normal(scale=5, size=(1000, 8))  # the privacy loss of a run with two worlds 0.5 apart
    loss = stats.laplace.logpdf(releases, 0.5, scale).sum(1) - stats.laplace.logpdf(releases, 0.0, scale).sum(1)
    assert loss.max() == pytest.approx(2.0, rel=0.2)
    assert np.abs(loss).max() <= 2.0 + 1e-9


# Against dp-accounting


with_dp_accounting = pytest.mark.skipif(
    find_spec("dp_accounting") is None, reason="want dp-accounting; install it with: pip install -e '.[test]'"
)


def google(event: object, count: int, delta: float = DELTA) -> float:
    """By Google's accountant, which composes privacy losses pessimistically on a grid of 1e-4 nats."""
    from dp_accounting import pld

    return float(pld.PLDAccountant().compose(event, count).get_epsilon(delta))


@with_dp_accounting
@pytest.mark.parametrize(("z", "sample_rate", "steps"), mostly_slow(SAMPLED, SAMPLED[1:3]))
def test_epsilons_agree_with_dp_accounting(z: float, sample_rate: float, steps: int) -> None:
    dp: Any = import_module("dp_accounting")
    event = dp.GaussianDpEvent(z)
    theirs = google(dp.PoissonSampledDpEvent(sample_rate, event) if sample_rate < 1 else event, steps)
    ours = prv_epsilon(z, DELTA, steps, sample_rate)
    assert theirs - 2e-3 <= ours <= theirs + 0.02
    if sample_rate == 1:
        assert accounting.gdp_epsilon(math.sqrt(steps) / z, DELTA) == pytest.approx(theirs, abs=1e-3)


@with_dp_accounting
def test_laplace_noise_agrees_with_dp_accounting() -> None:
    event = import_module("dp_accounting").LaplaceDpEvent(accounting.laplace_scale(4.0, 1.0, 8))
    assert google(event, 8, delta=1e-9) == pytest.approx(4.0, abs=2e-3)  # at 0 their tails make it infinite


# In words


def test_a_guarantee_in_words() -> None:
    assert in_words(4, 1e-5, ADD, "image", 16) == (
        "one image more or less in this client changes what the server can say by at most a factor e^4 = 54.6, but for "
        "probability 1e-05, over all 16 rounds"
    )
    assert in_words(0.5, 0.0, REPLACE, "image") == (
        "replacing one image of this client by another changes what the server can say by at most a factor e^0.5 = 1.65 "
        "over one round"
    )
    said = {in_words(1, 1e-5, adjacency, unit, 2) for adjacency in Adjacency for unit in ("image", "client")}
    assert len(said) == 4
    assert "factor e^1000 over all 3 releases" in in_words(1000, 0.0, REPLACE, "client", 3, "release")


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: poisson.rdp_epsilon(0.0, DELTA), "want noise_multiplier > 0"),
        (lambda: poisson.prv_epsilon(1.0, DELTA, 0), "want steps a whole number"),
        (lambda: poisson.prv_epsilon(1.0, 1.0), "want delta in"),
        (lambda: poisson.rdp_epsilon(1.0, DELTA, sample_rate=0.0), "want sample_rate"),
        (lambda: poisson.poisson_noise_multiplier(0.01, DELTA, 5, 0.1), "want epsilon > 0.02 at delta"),
        (lambda: accounting.noise_multiplier(1.0, DELTA, 0), "want releases"),
        (lambda: accounting.gdp_epsilon(1.0, 0.0), "want delta in"),
        (lambda: accounting.noise_multiplier(-1.0, DELTA), "want epsilon > 0"),
        (lambda: accounting.gdp_delta(-1.0, 1.0), "want epsilon >= 0"),
        (lambda: accounting.laplace_scale(math.inf, 1.0), "want epsilon > 0"),
        (lambda: sensitivity.l1_of_l2(0.0, 3), "want a sensitivity > 0"),
        (lambda: in_words(math.inf, 0.0, ADD, "image"), "want epsilon >= 0"),
        (lambda: in_words(1.0, 0.0, ADD, "image", 0), "want rounds"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_cannot_be_accounted_is_an_error(ask: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ask()
