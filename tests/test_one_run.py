"""One-run audits: the published bound, its ceilings, and orthonormal canaries in style space."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from conftest import mostly_slow

from fdgpriv.defense import defended
from fdgpriv.method import Method
from fdgpriv.privacy import accounting
from fdgpriv.privacy.adjacency import Adjacency
from fdgpriv.privacy.canaries import VectorCanaries
from fdgpriv.privacy.one_run import few_guesses, one_run, one_run_audit, one_run_ceiling, one_run_guesses, one_run_p
from fdgpriv.privacy.sensitivity import mean_sensitivity
from fdgpriv.utils.defaults import Bug
from fdgpriv.utils.seeds import generator

DELTA = 1e-5
ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# The bound


def test_one_run_equals_the_published_code() -> None:
    assert one_run_p(1000, 100, 80, 1.0, DELTA) == pytest.approx(0.0730091, abs=5e-8)
    assert one_run(1000, 100, 90, DELTA, 0.05).epsilon == pytest.approx(1.62614, abs=5e-6)


def test_one_run_p_is_its_sum_and_has_its_ceilings() -> None:
    m, r, v, delta = 60, 20, 15, 1e-3
    for epsilon in (0.0, 0.7, 2.0):
        q = math.exp(epsilon) / (1 + math.exp(epsilon))
        mass = [math.comb(r, w) * q**w * (1 - q) ** (r - w) for w in range(r + 1)]
        worst = max(sum(mass[v - i : v]) / i for i in range(1, v + 1))
        slow = min(1.0, sum(mass[v:]) + 2 * m * delta * worst)
        assert one_run_p(m, r, v, epsilon, delta) == pytest.approx(slow)
    for predictions, epsilon in ((10, 1.03), (30, 2.24), (100, 3.48), (300, 4.59), (1000, 5.78)):
        assert one_run_ceiling(max(512, predictions), predictions, DELTA) == pytest.approx(epsilon, abs=0.005)


def test_one_run_guesses() -> None:
    scores, coins = [0.1, 0.9, 0.5, 0.8, 0.2], [False, True, True, False, True]
    assert one_run_guesses(scores, coins, 2, 1) == (3, 2)
    assert one_run_guesses(scores, coins, 0, 2) == (2, 1)
    assert one_run(5, 0, 0, DELTA).reason == "no predictions were made"
    assert one_run(100, 50, 25, DELTA).epsilon == 0.0


def test_an_audit_gives_bound_and_p_value(rng: np.random.Generator) -> None:
    coins = rng.random(1000) < 0.5
    scores = 2.0 * coins + rng.normal(size=1000)
    found = one_run_audit(scores, coins, few_guesses(1000), 1.0, DELTA)
    right = one_run_guesses(scores, coins, 50, 50)[1]
    assert (found.guesses, found.correct) == (100, right)
    assert found.bound == one_run(1000, 100, right, DELTA)
    assert found.p == one_run_p(1000, 100, right, 1.0, DELTA) < 0.05 < (found.bound.epsilon or 0.0) - 1.0
    odd = one_run_audit([0.1, 0.9, 0.5, 0.8, 0.2], [False, True, True, False, True], 3, 1.0, DELTA)
    assert (odd.guesses, odd.correct) == (3, 2)
    assert (few_guesses(1024), few_guesses(5)) == (102, 2)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_p_value_of_a_true_claim_is_valid(epsilon: float, rng: np.random.Generator) -> None:
    """For randomized response of each coin, which has exactly this epsilon and attains the bound."""
    p = []
    for _ in range(1000):
        coins = rng.random(400) < 0.5
        told = coins ^ (rng.random(400) < 1 / (1 + math.exp(epsilon)))
        p.append(one_run_audit(told + 0.5 * rng.random(400), coins, 40, epsilon, 0.0).p)
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.asarray(p) <= level) <= level + 4 * math.sqrt(level / 1000)
    assert np.mean(np.asarray(p) <= 0.2) > 0.05  # and it is not idle


# VectorCanaries


def released(
    canaries: VectorCanaries, coins: np.ndarray, others: np.ndarray, n0: int, z: float, rng: np.random.Generator
) -> np.ndarray:
    """The noised sum of canaries and other images' clipped vectors, over n0, as calibrated for the canaries' adjacency."""
    noise = z * mean_sensitivity(canaries.clip, n0, canaries.adjacency)
    center = (canaries.vectors(coins).sum(0) + others.sum(0)) / n0
    return center + noise * rng.normal(size=center.shape)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_canaries_are_orthonormal_clipped_vectors(adjacency: Adjacency, rng: np.random.Generator) -> None:
    canaries = VectorCanaries.drawn(48, 64, 3.0, adjacency, rng)
    np.testing.assert_allclose(canaries.directions @ canaries.directions.T, np.eye(48), atol=1e-12)
    coins = canaries.coins(rng)
    lengths = np.linalg.norm(canaries.vectors(coins), axis=1)
    np.testing.assert_allclose(lengths, 3.0 * coins if adjacency is ADD else 3.0)
    flipped = coins ^ (np.arange(48) == 5)  # one coin changes the sum by the sensitivity, and no other canary's score
    change = canaries.vectors(flipped).sum(0) - canaries.vectors(coins).sum(0)
    assert np.linalg.norm(change) / 100 == pytest.approx(mean_sensitivity(3.0, 100, adjacency))
    np.testing.assert_allclose(np.delete(canaries.scores(change), 5), 0.0, atol=1e-12)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_canaries_of_the_claims_adjacency_show_its_mu(adjacency: Adjacency, rng: np.random.Generator) -> None:
    """The worst case, as for plain scores: at z = 1 with 512 canaries of 1,024 dimensions 1.47."""
    canaries = VectorCanaries.drawn(512, 1024, 3.0, adjacency, rng)
    others = rng.normal(size=(20, 1024))
    others *= 3.0 / np.linalg.norm(others, axis=1, keepdims=True)
    shown, truth = [], accounting.gdp_epsilon(1.0, DELTA)
    for _ in range(40):
        coins = canaries.coins(rng)
        scores = canaries.scores(released(canaries, coins, others, 600, 1.0, rng) - others.sum(0) / 600)
        shown.append(one_run_audit(scores, coins, few_guesses(512), truth, DELTA))
    assert np.mean([found.bound.epsilon for found in shown]) == pytest.approx(1.47, abs=0.2)
    assert all(found.p > 0.05 for found in shown)


def test_in_out_canaries_audit_replace_one_with_half_mu(rng: np.random.Generator) -> None:
    gaps = {}
    noise = mean_sensitivity(1.0, 100, REPLACE)
    for adjacency in Adjacency:
        canaries = VectorCanaries.drawn(512, 512, 1.0, adjacency, rng)
        coins = canaries.coins(rng)
        scores = canaries.scores(canaries.vectors(coins).sum(0) / 100)
        gaps[adjacency] = (scores[coins].mean() - scores[~coins].mean()) / noise
    assert gaps[REPLACE] == pytest.approx(1.0)
    assert gaps[ADD] == pytest.approx(0.5)


def test_half_the_noise_rejects_the_claim_in_one_run(rng: np.random.Generator) -> None:
    """Claimed 1 at z / 2 (true 2.15), 1,024 canaries, all the directions of a style of 512 channels."""
    z, p = accounting.noise_multiplier(1.0, DELTA), []
    canaries = VectorCanaries.drawn(1024, 1024, 3.0, REPLACE, rng)
    for noise in (z / 8, z):
        coins = canaries.coins(rng)
        release = released(canaries, coins, np.zeros((1, 1024)), 2000, noise, rng)
        p.append(one_run_audit(canaries.scores(release), coins, few_guesses(1024), 1.0, DELTA).p)
    assert p[0] < 1e-3 < 0.05 < p[1]


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: one_run_guesses([0.1, 0.9], [False, True], 3, 3), "want highest"),
        (lambda: one_run_p(10, 5, 6, 1.0, DELTA), "want 0 <= correct"),
        (lambda: one_run_audit([0.1, 0.9], [False, True], 0, 1.0, DELTA), "want at least 1 guess"),
        (lambda: one_run_audit([0.1, math.nan], [False, True], 2, 1.0, DELTA), "want scores without NaN"),
        (lambda: VectorCanaries(np.ones((3, 2)), 1.0, ADD), "want directions"),
        (lambda: VectorCanaries(np.ones((2, 3)), 1.0, ADD), "want orthonormal"),
        (lambda: VectorCanaries(np.eye(2), 0.0, ADD), "want a clipping norm"),
        (lambda: VectorCanaries.drawn(5, 4, 1.0, ADD, np.random.default_rng(0)), "want 1 <= count <= 4"),
        (lambda: VectorCanaries(np.eye(2), 1.0, ADD).scores(np.zeros(3)), "want a release of shape"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_cannot_be_audited_is_an_error(ask: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ask()


# In a defense's own release


@pytest.mark.parametrize(("epsilon", "mean"), mostly_slow([(10.0, 2.58), (4.377, 1.47), (1.993, 0.45)], []))
def test_canaries_in_one_client_s_training(epsilon: float, mean: float) -> None:
    """Means from simulations of other code, at the claims that noise of 0.5, 1 and 2 sensitivities gives."""
    found = [one_run_of("gaussian", epsilon, seed) for seed in range(30)]
    assert np.mean(found) == pytest.approx(mean, abs=0.25)
    assert sum(bound > epsilon for bound in found) <= 4


@pytest.mark.slow
def test_half_the_noise_makes_canaries_visible() -> None:
    plain, half = ([one_run_of(spec, 10.0, s) for s in range(20)] for spec in ("gaussian", "half"))
    assert np.mean(half) > np.mean(plain) + 0.1  # of at most 2.8: few guesses


def test_a_protected_client_is_one_canary() -> None:
    for spec in ("gaussian:unit=client", "laplace"):
        _, defense = defended(Method.parse("ccst"), spec)
        assert defense.canaries(None, None, None, generator(0)) is None  # type: ignore[arg-type]


def one_run_of(spec: str, epsilon: float, seed: int) -> float:
    """The bound at 95 % by as many guesses as an audit takes."""
    bug: Bug | None = "half-noise" if spec == "half" else None
    _, defense = defended(Method.parse("ccst"), f"gaussian:epsilon={epsilon}", bug)
    found = defense.canaries(None, None, None, generator(seed))  # type: ignore[arg-type]
    assert found is not None
    scores, included = (tensor.numpy() for tensor in found)
    return one_run_audit(scores, included, few_guesses(len(scores)), epsilon, DELTA).bound.epsilon or 0.0
