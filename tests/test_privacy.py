"""Epsilon measured: lower bounds from two worlds and from identification, their ceilings, and violations."""

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from conftest import mostly_slow
from scipy import stats

from fdgpriv.privacy import accounting
from fdgpriv.privacy.identification import identification, identification_replace_one
from fdgpriv.privacy.measured import Counts, Lower, ceiling, counting_bound, counts_at, gdp, held_out_counts
from fdgpriv.privacy.violation import violation
from fdgpriv.statistics.multiplicity import holm

DELTA = 1e-5


rng_of = np.random.default_rng


@pytest.fixture
def rng() -> np.random.Generator:
    return rng_of(0)


def worlds(z: float, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a release with noise z times its sensitivity, with and without the record."""
    return rng.normal(1 / z, 1, draws), rng.normal(0, 1, draws)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: held_out_counts([0.0, math.nan, 1.0, 2.0], [0.0] * 4, DELTA, rng_of(0)), "without NaN"),
        (lambda: held_out_counts([0.0], [1.0], DELTA, rng_of(0)), "at least 4 draws"),
        (lambda: Counts(0, 0, 0, 5), "want trials in both worlds"),
        (lambda: Counts(6, 5, 0, 5), "mistakes <= trials"),
        (lambda: counting_bound(Counts(0, 5, 0, 5), DELTA, 1.0), "want error in"),
        (lambda: violation(lambda e: counting_bound(Counts(0, 9, 0, 9), DELTA, e), -1.0), "want a claimed epsilon"),
        (lambda: identification(1, 10, 1, DELTA), "want at least 2 candidates"),
        (lambda: identification(1, 10, 5, DELTA, listed=5), "want 1 <= listed"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_cannot_be_measured_is_an_error(ask: Callable[[], object], told: str) -> None:
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
    ("z", "lower"), mostly_slow([(1.0, counting_bound), (0.5, gdp), (2.0, gdp)], [(1.0, counting_bound)])
)
def test_bounds_keep_below_the_truth(z: float, lower: Lower, rng: np.random.Generator) -> None:
    truth = accounting.gdp_epsilon(1 / z, DELTA)
    above = 0
    for _ in range(200):
        bound = lower(held_out_counts(*worlds(z, 1000, rng), DELTA, rng, lower), DELTA, 0.05)
        above += bound.epsilon is None or bound.epsilon > truth
    assert above <= 10


def test_counting_takes_a_score_at_the_threshold_for_out(rng: np.random.Generator) -> None:
    inside, outside = [1.0, 2.0, 3.0], [0.0, 2.0, 2.5, 4.0]
    assert counts_at(inside, outside, [2.0, -1.0]) == [Counts(2, 4, 2, 3), Counts(4, 4, 0, 3)]
    other_half = held_out_counts(*worlds(0.3, 1001, rng), DELTA, rng)
    assert (other_half.n_in, other_half.n_out) == (501, 501)
    pure = gdp(Counts(0, 50, 0, 50), 0.0)
    assert (pure.epsilon, pure.reason) == (None, "Gaussian noise has no finite epsilon at delta = 0")


# Violations


@pytest.mark.parametrize("lower", [counting_bound, gdp])
def test_p_is_the_smallest_error_that_exceeds_the_claim(lower: Lower) -> None:
    counts = Counts(20, 1000, 300, 1000)
    for claimed in (0.5, 2.0, 3.0):
        p = violation(lambda error: lower(counts, DELTA, error), claimed)
        assert 0 < p < 1
        at, below = lower(counts, DELTA, min(p * 1.001, 0.999999)).epsilon, lower(counts, DELTA, p * 0.999).epsilon
        assert at is not None
        assert below is not None
        assert below <= claimed < at
    assert violation(lambda error: lower(Counts(500, 1000, 500, 1000), DELTA, error), 0.0) == 1.0


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


def test_gaussian_identification_is_a_lower_bound(rng: np.random.Generator) -> None:
    n, trials, z = 10, 20_000, 1.0
    scores = rng.normal(size=(trials, n))
    scores[:, 0] += 1 / z / math.sqrt(2)  # N orthogonal styles, any two of them at distance 1/z
    right = int((scores.argmax(axis=1) == 0).sum())
    truth = accounting.gdp_epsilon(1 / z, DELTA)
    for bound in (identification, identification_replace_one):
        shown = bound(right, trials, n, DELTA).epsilon
        assert shown is not None
        assert 0 < shown <= truth


def test_identification_by_its_formulas() -> None:
    g = stats.binomtest(60, 200).proportion_ci(0.9, method="exact").low
    assert identification(60, 200, 50, DELTA).epsilon == pytest.approx(math.log(50 * (g - DELTA)))
    assert identification(60, 200, 50, DELTA, listed=5).epsilon == pytest.approx(math.log(50 * (g - DELTA) / 5))
    tight = math.log(49 * (g - DELTA) / (1 - g))
    assert identification_replace_one(60, 200, 50, DELTA).epsilon == pytest.approx(tight)


def test_identification_has_its_ceiling_and_its_floor() -> None:
    perfect = identification(10**6, 10**6, 50, DELTA)
    assert perfect.saturated
    assert math.log(50) - 1e-3 < (perfect.epsilon or 0) < math.log(50)
    g = 0.05 ** (1 / 100)
    tight = identification_replace_one(100, 100, 50, DELTA)
    assert tight.epsilon == pytest.approx(math.log(49 * (g - DELTA) / (1 - g)))
    for bound in (identification, identification_replace_one):
        assert bound(0, 100, 50, DELTA).epsilon == 0.0
        assert bound(2, 100, 50, DELTA).epsilon == 0.0  # chance


def test_violations_are_corrected_together() -> None:
    p = [violation(lambda e, k=k: identification(k, 100, 50, DELTA, e), 1.0) for k in (3, 15, 40)]  # type: ignore[misc]
    assert p[2] < p[1] < 0.05 < 0.5 < p[0]
    assert holm(p)[2] == pytest.approx(3 * p[2])


def test_results_verdicts_and_bounds_need_no_torch() -> None:
    names = ("privacy.accounting", "privacy.violation", "statistics.multiplicity", "selftest", "results.finding",
             "utils.fields")  # fmt: skip
    code = f"import sys, {', '.join(f'fdgpriv.{name}' for name in names)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
