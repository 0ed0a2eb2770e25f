"""The self test's table of epsilons: its shortcut draws as plain code does, and it fails estimators that are wrong."""

from functools import partial

import numpy as np
import pytest
from conftest import mostly_slow
from scipy import stats

from fdgpriv.privacy.measured import (
    Bound,
    Counts,
    Lower,
    counting_bound,
    counts_at,
    gdp,
    held_out_counts,
    quantile_places,
)
from fdgpriv.privacy.one_run import few_guesses, one_run, one_run_guesses
from fdgpriv.selftest import epsilon_alarms
from fdgpriv.selftest.additive_noise import LAPLACE, NORMAL, Array, NoiseDistribution, Places, Worlds
from fdgpriv.selftest.epsilon_alarms import KnownEpsilon

WORLDS = [Worlds(LAPLACE, 0.0), Worlds(LAPLACE, 1.0), Worlds(NORMAL, 2.0), Worlds(NORMAL, 20.0)]
NAMES = ["nothing", "laplace", "gaussian", "far apart"]
PLAIN = {LAPLACE: "laplace", NORMAL: "normal"}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def plain(worlds: Worlds, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Scores (draws,) of both worlds, one by one."""
    inside, outside = getattr(rng, PLAIN[worlds.noise])(size=(2, draws))
    return inside + worlds.shift, outside


# The shortcut


@pytest.mark.parametrize("noise", [LAPLACE, NORMAL])
def test_the_distributions_are_scipys(noise: NoiseDistribution) -> None:
    known = {LAPLACE: stats.laplace, NORMAL: stats.norm}[noise]
    x, p = np.linspace(-9, 9, 101), np.linspace(0, 1, 101)
    np.testing.assert_allclose(noise.cdf(x), known.cdf(x), rtol=1e-12)
    np.testing.assert_allclose(noise.quantile(p), known.ppf(p), atol=1e-12)


@pytest.mark.parametrize("worlds", WORLDS, ids=NAMES)
def test_counts_of_all_scores_are_those_of_sorting(
    worlds: Worlds, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Array] = []
    real = Worlds._scores

    def kept(
        self: Worlds, cells: Array, counts: Places, opened: Places, shift: float, rng: np.random.Generator
    ) -> Array:
        drawn.append(real(self, cells, counts, opened, shift, rng))
        return drawn[-1]

    monkeypatch.setattr(Worlds, "_scores", kept)
    found = worlds.quantile_counts(500, np.arange(1000), rng)
    inside, outside = drawn
    assert len(inside) == len(outside) == 500
    np.testing.assert_array_equal(found.thresholds, np.sort(np.concatenate(drawn)))
    slow = counts_at(inside, outside, found.thresholds)
    fast = [Counts(500 - b, 500, a, 500) for a, b in zip(found.below_in, found.below_out, strict=True)]
    assert fast == slow


@pytest.mark.parametrize("worlds", WORLDS, ids=NAMES)
def test_quantiles_are_distributed_as_plain_draws(worlds: Worlds, rng: np.random.Generator) -> None:
    """At ranks from the first to the last, 600 runs of each code; the least of 30 p-values is above 0.01 / 30."""
    draws, runs = 1000, 600
    places = quantile_places(2 * draws, 11)
    fast, slow = [], []
    for _ in range(runs):
        found = worlds.quantile_counts(draws, places, rng)
        fast.append([*found.thresholds, *found.below_in])
        inside, outside = plain(worlds, draws, rng)
        thresholds = np.sort(np.concatenate([inside, outside]))[places]
        slow.append([*thresholds, *np.searchsorted(np.sort(inside), thresholds, side="right")])
    both = zip(np.asarray(fast).T, np.asarray(slow).T, strict=True)
    p = [stats.ks_2samp(a, b, method="asymp").pvalue for a, b in both]
    assert min(p) > 0.01 / len(p)


@pytest.mark.parametrize(
    ("worlds", "delta", "lower"),
    [
        pytest.param(WORLDS[0], 0.0, counting_bound, marks=pytest.mark.slow),
        (WORLDS[1], 0.0, counting_bound),
        pytest.param(WORLDS[2], 1e-5, gdp, marks=pytest.mark.slow),
    ],
    ids=["nothing", "laplace", "gaussian"],
)
def test_held_out_counts_follow_the_plain_rule(
    worlds: Worlds, delta: float, lower: Lower, rng: np.random.Generator
) -> None:
    fast = [worlds.held_out_counts(2001, delta, rng, lower) for _ in range(300)]
    slow = [held_out_counts(*plain(worlds, 2001, rng), delta, rng, lower) for _ in range(300)]
    assert (fast[0].n_in, fast[0].n_out) == (slow[0].n_in, slow[0].n_out) == (1001, 1001)
    for of in ("false_positives", "false_negatives"):
        mistakes = [[getattr(counts, of) for counts in some] for some in (fast, slow)]
        assert stats.ks_2samp(*mistakes, method="asymp").pvalue > 0.005
    bounds = [[lower(counts, delta, 0.05).epsilon for counts in some] for some in (fast, slow)]
    assert stats.ks_2samp(*bounds, method="asymp").pvalue > 0.005


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_mistaken_maximum_against_plain_draws(epsilon: float, rng: np.random.Generator) -> None:
    draws, error = 500, 0.05

    def slow() -> float:
        inside, outside = plain(Worlds(LAPLACE, epsilon), draws, rng)
        thresholds = np.sort(np.concatenate([inside, outside]))[quantile_places(2 * draws - 1, 1001)]
        tried = set(counts_at(inside, outside, np.unique(thresholds)))
        return max(counting_bound(counts, 0.0, error).epsilon or 0.0 for counts in tried)

    fast = [epsilon_alarms.uncorrected_maximum(epsilon, draws, rng).epsilon for _ in range(200)]
    assert stats.ks_2samp(fast, [slow() for _ in range(200)], method="asymp").pvalue > 0.005


# The table


QUICK = "identification of 10"  # all, of fewer runs, in the self-test
CASES = [
    pytest.param(
        case, marks=[] if case.name.startswith(QUICK) else pytest.mark.slow, id=f"{case.name} {case.truth:.3g}"
    )
    for case in epsilon_alarms.cases()
]


@pytest.mark.parametrize("case", CASES)
def test_at_most_12_of_400_bounds_exceed_the_truth(case: KnownEpsilon, rng: np.random.Generator) -> None:
    runs = 200 if case.mistaken else 400  # 13 false alarms of the first 200 are 13 of 400
    assert (case.alarms(runs, 100_000, rng) > 12) == case.mistaken


@pytest.mark.slow
def test_the_plain_rule_keeps_below_the_truth_too(rng: np.random.Generator) -> None:
    """The same of plain draws, with no shortcut, and of the maximum over plain counts."""
    for epsilon in (0.0, 1.0):
        above = {"split": 0, "maximum": 0}
        for _ in range(400):
            inside, outside = plain(Worlds(LAPLACE, epsilon), 100_000, rng)
            split = counting_bound(held_out_counts(inside, outside, 0.0, rng), 0.0).epsilon
            thresholds = np.sort(np.concatenate([inside, outside]))[quantile_places(199_999, 1001)]
            tried = counts_at(inside, outside, thresholds)
            above["split"] += (split or 0.0) > epsilon
            above["maximum"] += any((counting_bound(c, 0.0).epsilon or 0.0) > epsilon for c in tried)
        assert above["split"] <= 12 < above["maximum"]


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_one_run_bounds_keep_below_the_truth(epsilon: float, rng: np.random.Generator) -> None:
    """1,000 canaries; at 95 % the bound is spent to the full, for Laplace noise attains it: at most 36 of 400 (20 + 3.7
    standard errors).
    """
    above = {0.01: 0, 0.05: 0}
    for _ in range(400):
        coins = rng.random(1000) < 0.5
        guesses = few_guesses(1000) // 2
        found = one_run_guesses(epsilon * coins + rng.laplace(size=1000), coins, guesses, guesses)
        for error in above:
            above[error] += (one_run(1000, *found, 0.0, error).epsilon or 0.0) > epsilon
    assert above[0.01] <= 12
    assert above[0.05] <= 36


def test_a_wrong_estimator_fails(rng: np.random.Generator) -> None:
    def chosen_on_the_test_half(draws: int, rng: np.random.Generator) -> Bound:
        """Identification that reports the best of 20 attacks."""
        return max(
            (epsilon_alarms.identified_response(1.0, draws, rng) for _ in range(20)), key=lambda b: b.epsilon or 0.0
        )

    assert KnownEpsilon("", 1.0, chosen_on_the_test_half).alarms(400, 1000, rng) > 12
    halved = KnownEpsilon("", 0.5, partial(epsilon_alarms.identified_response, 1.0))  # the truth is twice what is said
    assert halved.alarms(20, 100_000, rng) == 20


@pytest.mark.parametrize("claimed", mostly_slow(epsilon_alarms.CLAIMS, epsilon_alarms.CLAIMS[:1]))
def test_halved_noise_is_a_violation(claimed: float, rng: np.random.Generator) -> None:
    assert epsilon_alarms.violations(claimed, 0.5, 100, rng) == 100
    assert epsilon_alarms.violations(claimed, 1.0, 400, rng) == 0


def test_fewer_runs_allow_fewer_alarms() -> None:
    above, called = epsilon_alarms.epsilon_checks(20, 400, np.random.default_rng(0))
    assert len(above) == len(epsilon_alarms.cases())
    assert {check.allowed for check in above} == {0}
    assert [check.allowed for check in called] == [19, 0] * 2
    assert all(check.passed for check in called)
