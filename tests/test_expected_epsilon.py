"""What audits of known Gaussian noise show: the expected bounds, and how often too little noise is a VIOLATION."""

import numpy as np
import pytest
from scipy import special, stats

from fdgpriv.privacy import accounting
from fdgpriv.privacy.measured import Lower, counting_bound, gdp, held_out_counts
from fdgpriv.privacy.one_run import few_guesses, one_run, one_run_audit
from fdgpriv.privacy.violation import violation
from fdgpriv.selftest.additive_noise import NORMAL, Worlds

DELTA = 1e-5

# Mean 95 % bounds of a separate simulation, by z, then by draws of each world
COUNTING = {
    0.3: {1000: 3.97, 10_000: 5.95, 100_000: 7.44},
    0.5: {1000: 2.85, 10_000: 4.08, 100_000: 5.17},
    1.0: {1000: 1.10, 10_000: 1.83, 100_000: 2.74},
    2.0: {1000: 0.23, 10_000: 0.61, 100_000: 1.12},
    4.0: {1000: 0.02, 10_000: 0.19, 100_000: 0.47},
}
GDP = {
    0.3: {10_000: 17.88, 100_000: 18.34},
    0.5: {10_000: 9.25, 100_000: 9.50},
    1.0: {10_000: 3.88, 100_000: 4.22},
    2.0: {10_000: 1.50, 100_000: 1.85},
    4.0: {10_000: 0.57, 100_000: 0.80},
}
ONE_RUN = {  # by canaries
    0.3: {512: 2.77, 1024: 3.48, 4096: 4.80},
    0.5: {512: 2.58, 1024: 3.13, 4096: 4.19},
    1.0: {512: 1.47, 1024: 1.68, 4096: 1.93},
    2.0: {512: 0.45, 1024: 0.62, 4096: 0.86},
    4.0: {512: 0.19, 1024: 0.20, 4096: 0.35},
}
TRUE = {0.3: 19.13, 0.5: 10.00, 1.0: 4.38, 2.0: 1.99, 4.0: 0.93}

CELLS = [
    pytest.param(z, draws, lower, epsilon, marks=[pytest.mark.slow] if draws == 100_000 or z in (0.3, 2.0) else [])
    for lower, table in ((counting_bound, COUNTING), (gdp, GDP))
    for z, cells in table.items()
    for draws, epsilon in cells.items()
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def worlds(z: float, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a release with noise z times its sensitivity, with and without the record."""
    return rng.normal(1 / z, 1, draws), rng.normal(0, 1, draws)


def best_expected(z: float, tests: int, lower: Lower) -> float:
    """The bound at the expected counts of the best of 20,001 fixed thresholds, on `tests` scores of each world."""
    thresholds = np.linspace(-6, 12, 20_001)
    rates = np.minimum([stats.norm.sf(thresholds), stats.norm.cdf(thresholds - 1 / z)], 1 - 1e-6)
    fpr, fnr = special.betainccinv(tests * rates + 1, tests * (1 - rates), 0.025)
    if lower is gdp:
        return accounting.gdp_epsilon(float(np.nanmax(stats.norm.isf(fpr) - stats.norm.ppf(fnr))), DELTA)
    sides = [np.log(np.maximum(1 - DELTA - a, 1e-300) / b) for a, b in ((fpr, fnr), (fnr, fpr))]
    return max(0.0, float(np.max(sides)))


def test_the_true_epsilons() -> None:
    for z, epsilon in TRUE.items():
        assert accounting.gdp_epsilon(1 / z, DELTA) == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize(("z", "draws", "lower", "epsilon"), CELLS)
def test_what_known_noise_shows(z: float, draws: int, lower: Lower, epsilon: float, rng: np.random.Generator) -> None:
    """Mean over 40 audits against the separate simulation's, within 0.2 nats or 5 % (both are simulations), and against that
    of the best fixed threshold.
    """
    bounds = [lower(held_out_counts(*worlds(z, draws, rng), DELTA, rng, lower), DELTA, 0.05).epsilon for _ in range(40)]
    mean = np.mean([bound for bound in bounds if bound is not None])
    assert None not in bounds
    assert mean == pytest.approx(epsilon, abs=0.2, rel=0.05)
    best = best_expected(z, draws // 2, lower)
    assert 0.95 * best - 0.1 <= mean <= best + 0.15  # a threshold chosen from draws costs a little


@pytest.mark.parametrize(
    ("z", "canaries", "epsilon"),
    [
        pytest.param(z, canaries, epsilon, marks=[pytest.mark.slow] if canaries == 4096 else [])
        for z, cells in ONE_RUN.items()
        for canaries, epsilon in cells.items()
    ],
)
def test_what_one_run_shows(z: float, canaries: int, epsilon: float, rng: np.random.Generator) -> None:
    """Mean over 100 audits with 5 % + 5 % predictions against a separate simulation's, within 0.2 nats (both are
    simulations).
    """
    rights = []
    for _ in range(100):
        coins = rng.random(canaries) < 0.5
        scores = coins / z + rng.normal(size=canaries)
        rights.append(one_run_audit(scores, coins, few_guesses(canaries), 0.0, DELTA).correct)
    shown = {right: one_run(canaries, few_guesses(canaries), right, DELTA).epsilon or 0.0 for right in set(rights)}
    assert np.mean([shown[right] for right in rights]) == pytest.approx(epsilon, abs=0.2)
    assert max(shown.values()) <= accounting.gdp_epsilon(1 / z, DELTA)


# Half of the noise: claimed epsilon, the true one, and P(VIOLATION) of the separate simulation by rule

HALVED = [
    (1.0, 2.15, {(counting_bound, 10_000): 0.10, (counting_bound, 100_000): 1.0, (gdp, 10_000): 1.0}),
    (4.0, 9.08, {(counting_bound, 10_000): 0.23, (counting_bound, 100_000): 1.0, (gdp, 10_000): 1.0}),
    (8.0, 19.1, {(counting_bound, 10_000): 0.0, (counting_bound, 100_000): 0.10, (gdp, 10_000): 1.0}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("claimed", "true", "shares"), HALVED)
def test_probabilities_of_a_violation(
    claimed: float, true: float, shares: dict[tuple[Lower, int], float], rng: np.random.Generator
) -> None:
    """400 runs: within 0.12 of the separate simulation's with half of the noise, and with all of it none by counting, and at
    most 2 % by the GDP bound, whose error is 5 %.
    """
    z = accounting.noise_multiplier(claimed, DELTA)
    assert accounting.gdp_epsilon(2 / z, DELTA) == pytest.approx(true, abs=0.05)
    for (lower, draws), share in shares.items():
        for noise, wanted, within in ((z / 2, share, 0.12), (z, 0.0, 0.0 if lower is counting_bound else 0.02)):
            found = 0
            for _ in range(400):
                counts = Worlds(NORMAL, 1 / noise).held_out_counts(draws, DELTA, rng, lower)
                found += violation(lambda e, c=counts, low=lower: low(c, DELTA, e), claimed) <= 0.05  # type: ignore[misc]
            assert abs(found / 400 - wanted) <= within


def test_halved_noise_is_detected_with_100_000_draws(rng: np.random.Generator) -> None:
    z = accounting.noise_multiplier(1.0, DELTA)
    for _ in range(10):
        counts = held_out_counts(*worlds(z / 2, 100_000, rng), DELTA, rng)
        assert violation(lambda error, counts=counts: counting_bound(counts, DELTA, error), 1.0) <= 0.05  # type: ignore[misc]
