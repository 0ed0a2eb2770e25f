"""Epsilon proved and measured: the accountant, the lower bounds, their ceilings, and what they show of known noise."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, stats

from fdgpriv import selftest, verdict
from fdgpriv.privacy import accounting, sensitivity
from fdgpriv.privacy.identification import identification, identification_gdp, identification_replace_one
from fdgpriv.privacy.measured import (
    Counts,
    Lower,
    at_thresholds,
    ceiling,
    clopper_pearson,
    counts_at,
    gdp,
    held_out_counts,
)
from fdgpriv.privacy.one_run import one_run, one_run_ceiling, one_run_guesses, one_run_p
from fdgpriv.privacy.violation import violation

DELTA = 1e-5


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


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
    assert sensitivity.mean_add_remove(3.0, 6) == 0.5
    assert sensitivity.whole_vector(3.0) == 6.0
    with pytest.raises(ValueError, match="want a clipping norm C > 0"):
        sensitivity.whole_vector(0.0)
    with pytest.raises(ValueError, match="want n a whole number"):
        sensitivity.mean_replace_one(1.0, 0)


# Accounting


@pytest.mark.parametrize(("z", "epsilon"), [(0.5, 9.997), (1, 4.377), (2, 1.993), (4, 0.926), (8, 0.434)])
def test_epsilon_of_gaussian_noise(z: float, epsilon: float) -> None:
    exact = accounting.gdp_epsilon(accounting.gdp_mu(z), DELTA)
    assert exact == pytest.approx(epsilon, abs=5e-4)
    assert accounting.noise_multiplier(exact, DELTA) == pytest.approx(z)
    assert exact <= accounting.rdp_epsilon(z, DELTA) <= 1.2 * exact


@pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 0.5), (0.5, 0.5), (1.0, 1.0), (3.0, 1.3)])
def test_delta_is_the_hockey_stick_of_two_gaussians(epsilon: float, mu: float) -> None:
    def excess(x: float) -> float:
        return max(0.0, float(stats.norm.pdf(x, mu)) - math.exp(epsilon) * float(stats.norm.pdf(x)))

    slow, _ = integrate.quad(excess, -12, 14, limit=500, points=[epsilon / mu + mu / 2])
    assert accounting.gdp_delta(epsilon, mu) == pytest.approx(slow, rel=1e-6)


def test_rounds_and_artifacts_compose() -> None:
    assert accounting.gdp_mu(2.0, 50) == pytest.approx(math.sqrt(50) / 2)
    assert accounting.compose([0.5] * 50) == pytest.approx(accounting.gdp_mu(2.0, 50))
    assert accounting.compose([3.0, 4.0]) == pytest.approx(5.0)
    assert accounting.noise_multiplier(1.0, DELTA, 50) == pytest.approx(
        math.sqrt(50) * accounting.noise_multiplier(1.0, DELTA)
    )


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 200.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_calibrated_noise_keeps_the_claim_and_no_less_noise_does(epsilon: float, delta: float) -> None:
    mu = 1 / accounting.noise_multiplier(epsilon, delta)
    assert accounting.gdp_delta(epsilon, mu) <= delta < accounting.gdp_delta(epsilon, mu * (1 + 1e-6))


def test_the_renyi_bound_is_its_formula() -> None:
    z, releases = 3.0, 20
    orders = np.linspace(1.001, 60, 200_000)
    formula = orders * releases / (2 * z * z) - (np.log(DELTA) + np.log(orders)) / (orders - 1)
    formula += np.log((orders - 1) / orders)
    assert accounting.rdp_epsilon(z, DELTA, releases) == pytest.approx(formula.min(), rel=1e-3)
    assert accounting.rdp_epsilon(z, DELTA, releases, sample_rate=0.1) < 0.3 * formula.min()


def test_what_cannot_be_accounted_is_an_error() -> None:
    with pytest.raises(ValueError, match="want noise_multiplier > 0"):
        accounting.gdp_mu(0.0)
    with pytest.raises(ValueError, match="want releases"):
        accounting.gdp_mu(1.0, 0)
    with pytest.raises(ValueError, match="want delta in"):
        accounting.gdp_epsilon(1.0, 0.0)
    with pytest.raises(ValueError, match="want epsilon > 0"):
        accounting.noise_multiplier(-1.0, DELTA)
    with pytest.raises(ValueError, match="want epsilon >= 0"):
        accounting.gdp_delta(-1.0, 1.0)
    with pytest.raises(ValueError, match="want sample_rate"):
        accounting.rdp_epsilon(1.0, DELTA, sample_rate=0.0)
    assert accounting.gdp_epsilon(0.0, DELTA) == 0.0  # nothing released, nothing spent


# Bounds from two worlds


def test_the_bound_is_clopper_and_pearsons() -> None:
    counts = Counts(3, 500, 40, 400)
    fpr = stats.binomtest(3, 500).proportion_ci(0.9, method="exact").high  # two-sided 90 %: one-sided 5 % = 0.1 / 2
    fnr = stats.binomtest(40, 400).proportion_ci(0.9, method="exact").high
    slow = max(math.log((1 - DELTA - fnr) / fpr), math.log((1 - DELTA - fpr) / fnr))
    assert clopper_pearson(counts, DELTA, 0.1).epsilon == pytest.approx(slow)
    mu = stats.norm.ppf(1 - fpr) - stats.norm.ppf(fnr)
    assert gdp(counts, DELTA, 0.1).epsilon == pytest.approx(accounting.gdp_epsilon(mu, DELTA))


def test_a_useless_attack_shows_nothing() -> None:
    for counts in (
        Counts(50, 100, 50, 100),
        Counts(100, 100, 100, 100),
        Counts(0, 100, 100, 100),
        Counts(90, 100, 90, 100),
    ):
        assert clopper_pearson(counts, DELTA).epsilon == 0.0
        assert gdp(counts, DELTA).epsilon == 0.0  # the last one errs on purpose: no absolute value is taken


@pytest.mark.parametrize(
    ("lower", "trials", "epsilon"),
    [
        (clopper_pearson, 20, 1.60),
        (clopper_pearson, 100, 3.28),
        (clopper_pearson, 1000, 5.60),
        (clopper_pearson, 10_000, 7.90),
        (clopper_pearson, 100_000, 10.21),
        (gdp, 20, 9.51),
        (gdp, 100, 21.1),
        (gdp, 1000, 36.5),
    ],
)
def test_ceilings(lower: Lower, trials: int, epsilon: float) -> None:
    assert ceiling(trials, DELTA, lower=lower) == pytest.approx(epsilon, abs=0.005 if epsilon < 20 else 0.05)
    assert lower(Counts(0, trials, 0, trials), DELTA, 0.05).saturated
    assert not lower(Counts(0, trials, 1, trials), DELTA, 0.05).saturated


@pytest.mark.parametrize(
    ("z", "draws", "lower", "epsilon"),
    [
        (0.3, 1000, clopper_pearson, 3.97),
        (0.5, 1000, clopper_pearson, 2.85),
        (1.0, 1000, clopper_pearson, 1.10),
        (2.0, 1000, clopper_pearson, 0.23),
        (4.0, 1000, clopper_pearson, 0.02),
        (0.3, 10_000, clopper_pearson, 5.95),
        (1.0, 10_000, clopper_pearson, 1.83),
        (4.0, 10_000, clopper_pearson, 0.19),
        (0.3, 10_000, gdp, 17.88),
        (1.0, 10_000, gdp, 3.88),
        (4.0, 10_000, gdp, 0.57),
    ],
)
def test_what_known_noise_shows(z: float, draws: int, lower: Lower, epsilon: float, rng: np.random.Generator) -> None:
    """Mean over 40 audits against the table of AUDIT.md 5.8, within 0.15 nats or 5 % (both are simulations)."""
    bounds = [lower(held_out_counts(*worlds(z, draws, rng), DELTA, rng, lower), DELTA, 0.05).epsilon for _ in range(40)]
    assert all(bound is not None for bound in bounds)
    assert np.mean([bound for bound in bounds if bound is not None]) == pytest.approx(epsilon, abs=0.15, rel=0.05)


@pytest.mark.parametrize(("z", "lower"), [(1.0, clopper_pearson), (0.5, gdp), (2.0, gdp)])
def test_bounds_keep_below_the_truth(z: float, lower: Lower, rng: np.random.Generator) -> None:
    truth = accounting.gdp_epsilon(1 / z, DELTA)
    above = 0
    for _ in range(200):
        bound = lower(held_out_counts(*worlds(z, 1000, rng), DELTA, rng, lower), DELTA, 0.05)
        above += bound.epsilon is None or bound.epsilon > truth
    assert above <= 10


@pytest.mark.parametrize("epsilon", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_at_most_12_of_400_runs_exceed_the_truth(epsilon: float, rng: np.random.Generator) -> None:
    """Nothing released, and a Laplace release at delta = 0, each with 100,000 draws per world (AUDIT.md section 7)."""
    (alarms,) = selftest.epsilon_alarms(epsilon, [selftest.held_out], 400, 100_000, rng)
    assert alarms <= 12


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_uncorrected_maximum_fails_the_same_test(epsilon: float, rng: np.random.Generator) -> None:
    (alarms,) = selftest.epsilon_alarms(epsilon, [selftest.best_of_all_thresholds], 100, 100_000, rng)
    assert alarms > 3


def test_bonferroni_over_thresholds_fixed_beforehand(rng: np.random.Generator) -> None:
    inside, outside = worlds(0.5, 2000, rng)
    one = at_thresholds(inside, outside, [1.0], DELTA)
    assert one.epsilon == clopper_pearson(counts_at(inside, outside, [1.0])[0], DELTA).epsilon
    three = at_thresholds(inside, outside, [-1.0, 1.0, 4.0], DELTA, 0.06)
    slow = [clopper_pearson(c, DELTA, 0.02).epsilon for c in counts_at(inside, outside, [-1.0, 1.0, 4.0])]
    assert three.epsilon == max(bound for bound in slow if bound is not None)
    assert three.error == 0.06
    exceeded = 0
    for _ in range(200):
        inside, outside = rng.normal(size=(2, 1000))
        found = at_thresholds(inside, outside, np.linspace(-2, 2, 21), 0.0).epsilon
        exceeded += found is None or found > 0
    assert exceeded <= 10


def test_counting_takes_a_score_at_the_threshold_for_out() -> None:
    inside, outside = [1.0, 2.0, 3.0], [0.0, 2.0, 2.5, 4.0]
    assert counts_at(inside, outside, [2.0, -1.0]) == [Counts(2, 4, 2, 3), Counts(4, 4, 0, 3)]


def test_the_threshold_is_counted_on_the_other_half(rng: np.random.Generator) -> None:
    counts = held_out_counts(*worlds(0.3, 1001, rng), DELTA, rng)
    assert (counts.n_in, counts.n_out) == (501, 501)


def test_what_cannot_be_measured_is_an_error_or_null_with_its_reason(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="without NaN"):
        held_out_counts([0.0, math.nan, 1.0, 2.0], [0.0] * 4, DELTA, rng)
    with pytest.raises(ValueError, match="at least 4 draws"):
        held_out_counts([0.0], [1.0], DELTA, rng)
    with pytest.raises(ValueError, match="want trials in both worlds"):
        Counts(0, 0, 0, 5)
    with pytest.raises(ValueError, match="mistakes <= trials"):
        Counts(6, 5, 0, 5)
    with pytest.raises(ValueError, match="want error in"):
        clopper_pearson(Counts(0, 5, 0, 5), DELTA, 1.0)
    pure = gdp(Counts(0, 50, 0, 50), 0.0)
    assert pure.epsilon is None
    assert pure.reason == "Gaussian noise has no finite epsilon at delta = 0"


# Violations


@pytest.mark.parametrize("claimed", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("lower", [clopper_pearson, gdp])
def test_p_is_the_smallest_error_at_which_the_bound_exceeds_the_claim(claimed: float, lower: Lower) -> None:
    counts = Counts(20, 1000, 300, 1000)
    p = violation(lambda error: lower(counts, DELTA, error), claimed)
    assert 0 < p < 1
    at, below = lower(counts, DELTA, min(p * 1.001, 0.999999)).epsilon, lower(counts, DELTA, p * 0.999).epsilon
    assert at is not None
    assert below is not None
    assert below <= claimed < at


def test_p_is_1_where_no_error_refutes_the_claim() -> None:
    assert violation(lambda error: clopper_pearson(Counts(500, 1000, 500, 1000), DELTA, error), 0.0) == 1.0
    with pytest.raises(ValueError, match="want a claimed epsilon"):
        violation(lambda error: clopper_pearson(Counts(0, 9, 0, 9), DELTA, error), -1.0)


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
        assert violation(lambda error, counts=counts: clopper_pearson(counts, DELTA, error), 1.0) <= 0.05  # type: ignore[misc]


# One run


def test_one_run_equals_the_published_code() -> None:
    assert one_run_p(1000, 100, 80, 1.0, DELTA) == pytest.approx(0.0730091, abs=5e-8)
    assert one_run(1000, 100, 90, DELTA, 0.05).epsilon == pytest.approx(1.62614, abs=5e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_one_run_p_is_its_sum(epsilon: float) -> None:
    m, r, v, delta = 60, 20, 15, 1e-3
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [math.comb(r, w) * q**w * (1 - q) ** (r - w) for w in range(r + 1)]
    worst = max(sum(mass[v - i : v]) / i for i in range(1, v + 1))
    slow = min(1.0, sum(mass[v:]) + 2 * m * delta * worst)
    assert one_run_p(m, r, v, epsilon, delta) == pytest.approx(slow)


@pytest.mark.parametrize(("guesses", "epsilon"), [(10, 1.03), (30, 2.24), (100, 3.48), (300, 4.59), (1000, 5.78)])
def test_one_run_ceilings(guesses: int, epsilon: float) -> None:
    assert one_run_ceiling(max(512, guesses), guesses, DELTA) == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize(
    ("z", "canaries", "epsilon"),
    [(0.3, 512, 2.77), (0.3, 4096, 4.80), (0.5, 1024, 3.13), (1.0, 1024, 1.68), (2.0, 4096, 0.86), (4.0, 512, 0.19)],
)
def test_what_one_run_shows(z: float, canaries: int, epsilon: float, rng: np.random.Generator) -> None:
    """Mean over 100 audits with 5 % + 5 % guesses against AUDIT.md 5.8, within 0.2 nats (both are simulations)."""
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
    assert one_run(5, 0, 0, DELTA).reason == "no canary was guessed at"
    assert one_run(100, 50, 25, DELTA).epsilon == 0.0
    with pytest.raises(ValueError, match="want highest"):
        one_run_guesses(scores, coins, 3, 3)
    with pytest.raises(ValueError, match="want 0 <= correct"):
        one_run_p(10, 5, 6, 1.0, DELTA)


# Identification


@pytest.mark.parametrize("truth", [0.5, 2.0, 4.0])
def test_randomized_response_is_measured_to_its_epsilon(truth: float) -> None:
    """N-ary randomized response reaches the replace-one bound; the one for both adjacencies stays below it."""
    n, trials = 20, 10**8
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
    assert perfect.epsilon is not None
    assert math.log(50) - 1e-3 < perfect.epsilon < math.log(50)
    g = 0.05 ** (1 / 100)
    tight = identification_replace_one(100, 100, 50, DELTA)
    assert tight.epsilon == pytest.approx(math.log(49 * (g - DELTA) / (1 - g)))
    for bound in (identification, identification_replace_one, identification_gdp):
        assert bound(0, 100, 50, DELTA).epsilon == 0.0
        assert bound(2, 100, 50, DELTA).epsilon == 0.0  # chance
    with pytest.raises(ValueError, match="want at least 2 candidates"):
        identification(1, 10, 1, DELTA)
    with pytest.raises(ValueError, match="want 1 <= listed"):
        identification(1, 10, 5, DELTA, listed=5)


def test_violations_of_a_report_are_corrected_together() -> None:
    p = [violation(lambda e, k=k: identification(k, 100, 50, DELTA, e), 1.0) for k in (3, 15, 40)]  # type: ignore[misc]
    assert p[2] < p[1] < 0.05 < 0.5 < p[0]
    assert verdict.holm(p)[2] == pytest.approx(3 * p[2])


def test_only_the_renyi_bound_needs_torch() -> None:
    code = "import sys, fdgpriv.privacy.accounting, fdgpriv.privacy.violation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
