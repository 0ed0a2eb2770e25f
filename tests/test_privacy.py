"""Epsilon proved and measured: the accountant, the lower bounds, their ceilings, and what they show of known noise."""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate, stats

from fdgpriv.privacy import accounting, sensitivity
from fdgpriv.privacy.identification import identification, identification_gdp, identification_replace_one
from fdgpriv.privacy.measured import Counts, Lower, ceiling, counting_bound, counts_at, gdp, held_out_counts
from fdgpriv.privacy.one_run import one_run, one_run_ceiling, one_run_guesses, one_run_p
from fdgpriv.privacy.violation import violation
from fdgpriv.selftest import alarms
from fdgpriv.statistics.multiplicity import holm

DELTA = 1e-5


rng_of = np.random.default_rng


@pytest.fixture
def rng() -> np.random.Generator:
    return rng_of(0)


def worlds(z: float, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a release with noise z times its sensitivity, with and without the record."""
    return rng.normal(1 / z, 1, draws), rng.normal(0, 1, draws)


# Sensitivity


def test_no_replacement_moves_a_mean_of_clipped_vectors_further(rng: np.random.Generator) -> None:
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


def test_sensitivities() -> None:
    assert sensitivity.whole_vector(3.0) == 6.0
    with pytest.raises(ValueError, match="want a clipping norm C > 0"):
        sensitivity.whole_vector(0.0)
    with pytest.raises(ValueError, match="want n a whole number"):
        sensitivity.mean_replace_one(1.0, 0)


# Accounting


def test_epsilon_of_gaussian_noise() -> None:
    for z, epsilon in ((0.5, 9.997), (1, 4.377), (2, 1.993), (4, 0.926), (8, 0.434)):
        exact = accounting.gdp_epsilon(1 / z, DELTA)
        assert exact == pytest.approx(epsilon, abs=5e-4)
        assert accounting.noise_multiplier(exact, DELTA) == pytest.approx(z)
        assert exact <= accounting.rdp_epsilon(z, DELTA) <= 1.2 * exact


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


def test_calibrated_noise_keeps_the_claim_and_no_less_noise_does() -> None:
    for epsilon, delta in itertools.product((0.01, 1.0, 8.0, 200.0), (1e-12, 1e-5, 0.3)):
        mu = 1 / accounting.noise_multiplier(epsilon, delta)
        assert accounting.gdp_delta(epsilon, mu) <= delta < accounting.gdp_delta(epsilon, mu * (1 + 1e-6))


def test_the_renyi_bound_is_its_formula() -> None:
    z, releases = 3.0, 20
    orders = np.linspace(1.001, 60, 200_000)
    formula = orders * releases / (2 * z * z) - (np.log(DELTA) + np.log(orders)) / (orders - 1)
    formula += np.log((orders - 1) / orders)
    assert accounting.rdp_epsilon(z, DELTA, releases) == pytest.approx(formula.min(), rel=1e-3)
    assert accounting.rdp_epsilon(z, DELTA, releases, sample_rate=0.1) < 0.3 * formula.min()


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: accounting.rdp_epsilon(0.0, DELTA), "want noise_multiplier > 0"),
        (lambda: accounting.noise_multiplier(1.0, DELTA, 0), "want releases"),
        (lambda: accounting.gdp_epsilon(1.0, 0.0), "want delta in"),
        (lambda: accounting.noise_multiplier(-1.0, DELTA), "want epsilon > 0"),
        (lambda: accounting.gdp_delta(-1.0, 1.0), "want epsilon >= 0"),
        (lambda: accounting.rdp_epsilon(1.0, DELTA, sample_rate=0.0), "want sample_rate"),
        (lambda: held_out_counts([0.0, math.nan, 1.0, 2.0], [0.0] * 4, DELTA, rng_of(0)), "without NaN"),
        (lambda: held_out_counts([0.0], [1.0], DELTA, rng_of(0)), "at least 4 draws"),
        (lambda: Counts(0, 0, 0, 5), "want trials in both worlds"),
        (lambda: Counts(6, 5, 0, 5), "mistakes <= trials"),
        (lambda: counting_bound(Counts(0, 5, 0, 5), DELTA, 1.0), "want error in"),
        (lambda: violation(lambda e: counting_bound(Counts(0, 9, 0, 9), DELTA, e), -1.0), "want a claimed epsilon"),
        (lambda: one_run_guesses([0.1, 0.9], [False, True], 3, 3), "want highest"),
        (lambda: one_run_p(10, 5, 6, 1.0, DELTA), "want 0 <= correct"),
        (lambda: identification(1, 10, 1, DELTA), "want at least 2 candidates"),
        (lambda: identification(1, 10, 5, DELTA, listed=5), "want 1 <= listed"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_cannot_be_accounted_or_measured_is_an_error(ask: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ask()


# Bounds from two worlds


def test_the_bound_is_clopper_and_pearsons() -> None:
    counts = Counts(3, 500, 40, 400)
    fpr = stats.binomtest(3, 500).proportion_ci(0.9, method="exact").high  # two-sided 90 %: one-sided 5 % = 0.1 / 2
    fnr = stats.binomtest(40, 400).proportion_ci(0.9, method="exact").high
    slow = max(math.log((1 - DELTA - fnr) / fpr), math.log((1 - DELTA - fpr) / fnr))
    assert counting_bound(counts, DELTA, 0.1).epsilon == pytest.approx(slow)
    mu = stats.norm.ppf(1 - fpr) - stats.norm.ppf(fnr)
    assert gdp(counts, DELTA, 0.1).epsilon == pytest.approx(accounting.gdp_epsilon(mu, DELTA))


def test_a_useless_attack_shows_nothing() -> None:
    """The last one errs on purpose: no absolute value is taken."""
    for mistakes in ((50, 50), (100, 100), (0, 100), (90, 90)):
        counts = Counts(mistakes[0], 100, mistakes[1], 100)
        assert counting_bound(counts, DELTA).epsilon == gdp(counts, DELTA).epsilon == 0.0


def test_ceilings() -> None:
    for trials, epsilon in ((20, 1.60), (100, 3.28), (1000, 5.60), (10_000, 7.90), (100_000, 10.21)):
        assert ceiling(trials, DELTA, lower=counting_bound) == pytest.approx(epsilon, abs=0.005)
    for trials, epsilon in ((20, 9.51), (100, 21.1), (1000, 36.5)):
        assert ceiling(trials, DELTA, lower=gdp) == pytest.approx(epsilon, abs=0.005 if epsilon < 20 else 0.05)
    for lower in (counting_bound, gdp):
        assert lower(Counts(0, 100, 0, 100), DELTA, 0.05).saturated
        assert not lower(Counts(0, 100, 1, 100), DELTA, 0.05).saturated


@pytest.mark.parametrize(
    ("z", "draws", "lower", "epsilon"),
    [
        (0.3, 1000, counting_bound, 3.97),
        (0.5, 1000, counting_bound, 2.85),
        (1.0, 1000, counting_bound, 1.10),
        (2.0, 1000, counting_bound, 0.23),
        (4.0, 1000, counting_bound, 0.02),
        (0.3, 10_000, counting_bound, 5.95),
        (1.0, 10_000, counting_bound, 1.83),
        (4.0, 10_000, counting_bound, 0.19),
        (0.3, 10_000, gdp, 17.88),
        (1.0, 10_000, gdp, 3.88),
        (4.0, 10_000, gdp, 0.57),
    ],
)
def test_what_known_noise_shows(z: float, draws: int, lower: Lower, epsilon: float, rng: np.random.Generator) -> None:
    """Mean over 40 audits against a separate simulation's, within 0.15 nats or 5 % (both are simulations)."""
    bounds = [lower(held_out_counts(*worlds(z, draws, rng), DELTA, rng, lower), DELTA, 0.05).epsilon for _ in range(40)]
    assert all(bound is not None for bound in bounds)
    assert np.mean([bound for bound in bounds if bound is not None]) == pytest.approx(epsilon, abs=0.15, rel=0.05)


@pytest.mark.parametrize(("z", "lower"), [(1.0, counting_bound), (0.5, gdp), (2.0, gdp)])
def test_bounds_keep_below_the_truth(z: float, lower: Lower, rng: np.random.Generator) -> None:
    truth = accounting.gdp_epsilon(1 / z, DELTA)
    above = 0
    for _ in range(200):
        bound = lower(held_out_counts(*worlds(z, 1000, rng), DELTA, rng, lower), DELTA, 0.05)
        above += bound.epsilon is None or bound.epsilon > truth
    assert above <= 10


@pytest.mark.parametrize("epsilon", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_at_most_12_of_400_runs_exceed_the_truth(epsilon: float, rng: np.random.Generator) -> None:
    """Nothing released, and a Laplace release at delta = 0, each with 100,000 draws per world."""
    (found,) = alarms.epsilon_alarms(epsilon, [alarms.held_out], 400, 100_000, rng)
    assert found <= 12


@pytest.mark.parametrize("epsilon", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_the_uncorrected_maximum_fails_the_same_test(epsilon: float, rng: np.random.Generator) -> None:
    (found,) = alarms.epsilon_alarms(epsilon, [alarms.best_of_all_thresholds], 100, 100_000, rng)
    assert found > 3


def test_counting_takes_a_score_at_the_threshold_for_out(rng: np.random.Generator) -> None:
    inside, outside = [1.0, 2.0, 3.0], [0.0, 2.0, 2.5, 4.0]
    assert counts_at(inside, outside, [2.0, -1.0]) == [Counts(2, 4, 2, 3), Counts(4, 4, 0, 3)]
    other_half = held_out_counts(*worlds(0.3, 1001, rng), DELTA, rng)
    assert (other_half.n_in, other_half.n_out) == (501, 501)
    pure = gdp(Counts(0, 50, 0, 50), 0.0)
    assert (pure.epsilon, pure.reason) == (None, "Gaussian noise has no finite epsilon at delta = 0")


# Violations


@pytest.mark.parametrize("lower", [counting_bound, gdp])
def test_p_is_the_smallest_error_at_which_the_bound_exceeds_the_claim(lower: Lower) -> None:
    counts = Counts(20, 1000, 300, 1000)
    for claimed in (0.5, 2.0, 3.0):
        p = violation(lambda error: lower(counts, DELTA, error), claimed)
        assert 0 < p < 1
        at, below = lower(counts, DELTA, min(p * 1.001, 0.999999)).epsilon, lower(counts, DELTA, p * 0.999).epsilon
        assert at is not None
        assert below is not None
        assert below <= claimed < at
    assert violation(lambda error: lower(Counts(500, 1000, 500, 1000), DELTA, error), 0.0) == 1.0


@pytest.mark.parametrize("claimed", [1.0, 4.0])
def test_halved_noise_is_a_violation_and_correct_noise_is_not(claimed: float, rng: np.random.Generator) -> None:
    z = accounting.noise_multiplier(claimed, DELTA)

    def p(noise: float) -> float:
        counts = held_out_counts(*worlds(noise, 10_000, rng), DELTA, rng, gdp)
        return violation(lambda error: gdp(counts, DELTA, error), claimed)

    assert all(p(z / 2) <= 0.05 for _ in range(20))
    assert sum(p(z) <= 0.05 for _ in range(40)) <= 2


def test_halved_noise_is_seen_without_assumptions_at_100_000_draws(rng: np.random.Generator) -> None:
    z = accounting.noise_multiplier(1.0, DELTA)
    for _ in range(10):
        counts = held_out_counts(*worlds(z / 2, 100_000, rng), DELTA, rng)
        assert violation(lambda error, counts=counts: counting_bound(counts, DELTA, error), 1.0) <= 0.05  # type: ignore[misc]


# One run


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


@pytest.mark.parametrize(
    ("z", "canaries", "epsilon"),
    [(0.3, 512, 2.77), (0.3, 4096, 4.80), (0.5, 1024, 3.13), (1.0, 1024, 1.68), (2.0, 4096, 0.86), (4.0, 512, 0.19)],
)
def test_what_one_run_shows(z: float, canaries: int, epsilon: float, rng: np.random.Generator) -> None:
    """Mean over 100 audits with 5 % + 5 % predictions against a separate simulation's, within 0.2 nats (both are
    simulations).
    """
    few = int(0.05 * canaries)
    rights = []
    for _ in range(100):
        coins = rng.random(canaries) < 0.5
        rights.append(one_run_guesses(coins / z + rng.normal(size=canaries), coins, few, few)[1])
    shown = {right: one_run(canaries, 2 * few, right, DELTA).epsilon or 0.0 for right in set(rights)}
    assert np.mean([shown[right] for right in rights]) == pytest.approx(epsilon, abs=0.2)
    assert max(shown.values()) <= accounting.gdp_epsilon(1 / z, DELTA)


def test_one_run_guesses() -> None:
    scores, coins = [0.1, 0.9, 0.5, 0.8, 0.2], [False, True, True, False, True]
    assert one_run_guesses(scores, coins, 2, 1) == (3, 2)
    assert one_run_guesses(scores, coins, 0, 2) == (2, 1)
    assert one_run(5, 0, 0, DELTA).reason == "no predictions were made"
    assert one_run(100, 50, 25, DELTA).epsilon == 0.0


# Identification


def test_randomized_response_is_measured_to_its_epsilon() -> None:
    """N-ary randomized response reaches the replace-one bound; the one for both adjacencies stays below it."""
    n, trials = 20, 10**8
    for truth in (0.5, 2.0, 4.0):
        right = round(trials * math.exp(truth) / (math.exp(truth) + n - 1))
        tight, loose = identification_replace_one(right, trials, n, 0.0), identification(right, trials, n, 0.0)
        assert tight.epsilon is not None
        assert loose.epsilon is not None
        assert loose.epsilon < tight.epsilon <= truth
        assert tight.epsilon == pytest.approx(truth, abs=0.005)


def test_gaussian_identification_is_measured_below_its_truth(rng: np.random.Generator) -> None:
    n, trials, z = 10, 20_000, 1.0
    scores = rng.normal(size=(trials, n))
    scores[:, 0] += 1 / z / math.sqrt(2)  # N orthogonal styles, any two of them at distance 1/z
    right = int((scores.argmax(axis=1) == 0).sum())
    truth = accounting.gdp_epsilon(1 / z, DELTA)
    for bound in (identification, identification_replace_one, identification_gdp):
        shown = bound(right, trials, n, DELTA).epsilon
        assert shown is not None
        assert 0 < shown <= truth


def test_identification_by_its_formulas() -> None:
    g = stats.binomtest(60, 200).proportion_ci(0.9, method="exact").low
    assert identification(60, 200, 50, DELTA).epsilon == pytest.approx(math.log(50 * (g - DELTA)))
    assert identification(60, 200, 50, DELTA, listed=5).epsilon == pytest.approx(math.log(50 * (g - DELTA) / 5))
    tight = math.log(49 * (g - DELTA) / (1 - g))
    assert identification_replace_one(60, 200, 50, DELTA).epsilon == pytest.approx(tight)
    mu = stats.norm.ppf(g) - stats.norm.ppf(1 / 50)
    assert identification_gdp(60, 200, 50, DELTA).epsilon == pytest.approx(accounting.gdp_epsilon(mu, DELTA))


def test_identification_has_its_ceiling_and_its_floor() -> None:
    perfect = identification(10**6, 10**6, 50, DELTA)
    assert perfect.saturated
    assert math.log(50) - 1e-3 < (perfect.epsilon or 0) < math.log(50)
    g = 0.05 ** (1 / 100)
    tight = identification_replace_one(100, 100, 50, DELTA)
    assert tight.epsilon == pytest.approx(math.log(49 * (g - DELTA) / (1 - g)))
    for bound in (identification, identification_replace_one, identification_gdp):
        assert bound(0, 100, 50, DELTA).epsilon == 0.0
        assert bound(2, 100, 50, DELTA).epsilon == 0.0  # chance


def test_violations_of_a_report_are_corrected_together() -> None:
    p = [violation(lambda e, k=k: identification(k, 100, 50, DELTA, e), 1.0) for k in (3, 15, 40)]  # type: ignore[misc]
    assert p[2] < p[1] < 0.05 < 0.5 < p[0]
    assert holm(p)[2] == pytest.approx(3 * p[2])


def test_results_verdicts_and_all_bounds_but_the_renyi_bound_need_no_torch() -> None:
    names = ("privacy.accounting", "privacy.violation", "statistics.multiplicity", "selftest", "results.finding")
    code = f"import sys, {', '.join(f'fdgpriv.{name}' for name in names)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
