"""The test of one attack against its controls: its level where nothing leaks, its power where something does, its bounds."""

from collections.abc import Callable

import numpy as np
import pytest
from conftest import mostly_slow
from scipy import stats

from fdgpriv.selftest import alarms
from fdgpriv.statistics import interval, rule
from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.rule import LeadTest

RESAMPLES = 400


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def ends(shown: rule.Test | interval.Interval) -> tuple[float, float]:
    """The lower and upper bound."""
    return shown.lower, shown.upper


# Level and power


@pytest.mark.parametrize("name", mostly_slow(list(alarms.NULLS), ("clients", "images")))
def test_at_most_4_percent_of_nulls_say_leak(name: str, rng: np.random.Generator) -> None:
    found = alarms.verdict_alarms(alarms.NULLS[name], alarms.rule, 1000, rng)
    assert found <= 40
    if name in ("clients", "images"):  # one control as good as the attack: a rule that never says LEAK is caught here
        assert stats.binom.cdf(found, 1000, 0.025) > 1e-3


def test_testing_only_the_best_control_is_caught(rng: np.random.Generator) -> None:
    assert alarms.verdict_alarms(alarms.exchangeable, alarms.best_control_only, 300, rng) > 0.06 * 300


def test_resampling_images_is_caught(rng: np.random.Generator) -> None:
    assert alarms.verdict_alarms(alarms.clients, alarms.resample_images, 300, rng) > 0.2 * 300


def test_a_real_leak_is_found(rng: np.random.Generator) -> None:
    for units in (12, 60):
        leaks = 0
        for _ in range(100):
            attack, one, other = rng.normal(size=(3, units)) + np.array([[6 / units**0.5], [0], [0]])
            leaks += (rule.test(LeadTest(attack, {"one": one, "other": other}), rng, RESAMPLES).p or 0.0) <= 0.025
        assert leaks >= 85


def test_the_bounds_cover_the_truth(rng: np.random.Generator) -> None:
    for units in (12, 40):
        above, below = 0, 0
        for _ in range(300):
            attack, one, other = rng.normal(size=(3, units)) + np.array([[1.0], [0.4], [0.0]])
            shown = rule.test(LeadTest(attack, {"one": one, "other": other}), rng, RESAMPLES)
            above += ends(shown)[0] > 0.6
            below += ends(shown)[1] < 0.6
        assert above <= 15
        assert below <= 15


def test_p_and_lower_bound_agree(rng: np.random.Generator) -> None:
    seen = set()
    for _ in range(200):
        line = LeadTest(rng.exponential(size=24) + 0.4, {"b": rng.exponential(size=24)})
        shown = rule.test(line, rng, RESAMPLES)
        assert (shown.p <= 0.025) == (shown.lower > 0)
        seen.add(shown.p <= 0.025)
    assert seen == {True, False}


# One line


def test_below_20_units_it_is_the_t_test(rng: np.random.Generator) -> None:
    attack, control = rng.normal(size=(2, 30))
    attack += 0.8
    cluster = np.repeat(np.arange(10), 3)
    shown = rule.test(LeadTest(attack, {"b": control}, cluster), rng, RESAMPLES)
    d = np.array([(attack - control)[cluster == u].mean() for u in range(10)])
    wanted = stats.ttest_1samp(d, 0, alternative="greater")
    both = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert shown.p == pytest.approx(max(wanted.pvalue, 2.0**-10))
    assert (shown.lower, shown.upper) == pytest.approx((both.low, both.high))


def test_from_20_units_it_is_bootstrap_and_t(rng: np.random.Generator) -> None:
    d = np.stack([rng.exponential(size=24) - 0.6, rng.exponential(size=24) * -1 + 1.4], axis=1)
    line = LeadTest(np.zeros(24), {"right": -d[:, 0], "left": -d[:, 1]})
    shown = rule.test(line, rng, 20_000)
    for column, name in zip(d.T, line.controls, strict=True):
        mean, se = column.mean(), stats.sem(column)
        drawn = rng.choice(column, (100_000, 24))  # the plain way, resample by resample
        t = (drawn.mean(axis=1) - mean) / stats.sem(drawn, axis=1)
        t_test = stats.ttest_1samp(column, 0, alternative="greater").pvalue
        p = max((t >= mean / se).mean(), t_test)
        lower = mean - max(np.quantile(t, 0.975), stats.t.isf(0.025, 23)) * se
        upper = mean - min(np.quantile(t, 0.025), stats.t.ppf(0.025, 23)) * se
        one = shown.per_control[name]
        assert one.p == pytest.approx(p, rel=0.2, abs=1e-3)
        assert (one.lower, one.upper) == pytest.approx((lower, upper), abs=0.3 * se)


def test_the_attack_must_beat_every_control(rng: np.random.Generator) -> None:
    base = rng.normal(size=40)
    attack = base + 1 + 0.1 * rng.normal(size=40)
    weak, equal = base + 0.1 * rng.normal(size=40), attack + 0.1 * rng.normal(size=40)
    alone = rule.test(LeadTest(attack, {"weak": weak}), rng, RESAMPLES)
    both = rule.test(LeadTest(attack, {"weak": weak, "equal": equal}), rng, RESAMPLES)
    assert (alone.p or 0.0) < 0.01 < 0.1 < (both.p or 0.0)
    assert both.strongest_control == "equal"
    assert both.p == max(c.p for c in both.per_control.values() if c.p is not None)
    assert both.lower == min(c.lower for c in both.per_control.values() if c.lower is not None)


def test_clusters_of_unequal_size_weigh_the_same(rng: np.random.Generator) -> None:
    line = LeadTest(np.array([1.0, 1.0, 1.0, 3.0]), {"b": np.zeros(4)}, np.array(["a", "a", "a", "b"]))
    shown = rule.test(line, rng, RESAMPLES)
    assert (shown.difference, shown.units) == (2.0, 2)


def test_hits_against_none_have_mcnemar_s_p(rng: np.random.Generator) -> None:
    for wins, p in ((12, 2.0**-12), (8, 2.0**-8), (3, 2.0**-3), (0, 1.0)):
        hits = np.array([1.0] * wins + [0.0] * (12 - wins))
        shown = rule.test(LeadTest(hits, {"b": np.zeros(12)}, bounds=(0, 1)), rng, 100_000)
        assert shown.p == pytest.approx(p, rel=0.1, abs=1e-4)


def chance(rate: float, units: int, rng: np.random.Generator) -> Array:
    """Mean hits of 30 guesses for each unit."""
    return rng.binomial(30, rate, units) / 30


def test_many_hits_beat_the_mean_of_guesses(rng: np.random.Generator) -> None:
    """Bootstrap-t has p = .02 to .04 here: in 4 % of resamples all hit, and the differences hardly vary."""
    hits = np.append(np.ones(27), np.zeros(3))
    found = rule.test(LeadTest(hits, {"noise": chance(1 / 30, 30, rng)}, bounds=(0.0, 1.0)), rng, 10_000)
    assert found.p < 0.001
    assert (found.lower or 0.0) > 0.6


@pytest.mark.parametrize("rate", [1 / 30, 1 / 3, 0.9])
def test_hits_at_the_rate_of_guesses_rarely_beat_them(rate: float, rng: np.random.Generator) -> None:
    leaks = 0
    for _ in range(400):
        hits = (rng.random(30) < rate).astype(float)
        found = rule.test(
            LeadTest(hits, {"noise": chance(rate, 30, rng)}, bounds=(0.0, 1.0)), rng, RESAMPLES, sharp=False
        )
        leaks += found.p is not None and found.p <= 0.025
    assert leaks <= 0.04 * 400


def test_equal_answers_have_p_1_and_bounds_0(rng: np.random.Generator) -> None:
    scores = rng.random(15).round()
    for bounds in (None, (0.0, 1.0)):
        shown = rule.test(LeadTest(scores, {"b": scores}, bounds=bounds), rng, RESAMPLES)
        assert (shown.p, shown.difference, shown.lower, shown.upper, shown.resolution) == (1.0, 0.0, 0.0, None, None)
        assert shown.no_bound == "not_above_control"
    worse = rule.test(LeadTest(np.full(15, -0.3), {"b": np.zeros(15)}), rng, RESAMPLES)
    assert (worse.p, worse.lower, worse.upper) == (1.0, None, None)  # constant, but not the control's answers


def test_constant_differences_have_the_sign_flip_p(rng: np.random.Generator) -> None:
    attack = np.arange(15) / 10 + 0.1  # differences of 0.1 but for rounding
    assert rule.test(LeadTest(attack, {"b": np.arange(15) / 10}), rng, RESAMPLES).p == 2.0**-15
    few = rule.test(LeadTest(np.array([5.0, 5.1, 5.2, 4.9, 5.0]), {"b": np.zeros(5)}), rng, RESAMPLES)
    assert few.p == 2.0**-5
    assert few.lower == 0.0  # p is above the level, so the bound may not claim more


def test_the_bound_of_rare_hits_is_clopper_pearson(rng: np.random.Generator) -> None:
    for wins, units in ((1, 12), (1, 20), (3, 40)):
        hits = np.array([1.0] * wins + [0.0] * (units - wins))
        shown = rule.test(LeadTest(hits, {"b": np.zeros(units)}, bounds=(0, 1)), rng, 100_000)
        assert shown.upper == pytest.approx(stats.beta.ppf(0.975, wins + 1, units - wins), rel=0.03)
        assert rule.test(LeadTest(hits, {"b": np.zeros(units)}), rng, RESAMPLES).upper is None


def test_the_same_generator_gives_the_same_test() -> None:
    line = LeadTest(np.random.default_rng(1).normal(size=30), {"b": np.zeros(30)})
    one, other = (rule.test(line, np.random.default_rng(7), RESAMPLES) for _ in range(2))
    assert one == other


def test_one_unit_has_no_p_and_says_so(rng: np.random.Generator) -> None:
    shown = rule.test(LeadTest(np.ones(4), {"b": np.zeros(4)}, np.zeros(4)), rng, RESAMPLES)
    assert (shown.p, shown.lower, shown.upper, shown.difference) == (None, None, None, 1.0)
    assert shown.reason == "want at least 2 units, got 1"


TWO, BEYOND, NORMAL = np.zeros(2), np.full(12, 2.0), np.random.default_rng(0).normal(size=30)


def test_what_cannot_be_tested_is_an_error() -> None:
    rng = np.random.default_rng(0)
    asks: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: LeadTest(np.array([1.0, np.nan]), {"b": TWO}), "want finite attack, got nan at 1"),
        (lambda: LeadTest(TWO, {"b": np.array([np.inf, 0.0])}), "want finite control 'b', got inf"),
        (lambda: LeadTest(TWO, {}), "at least one control"),
        (lambda: LeadTest(TWO, {"b": np.zeros(3)}), "paired"),
        (lambda: LeadTest(TWO, {"b": TWO}, np.zeros(3)), r"want cluster \(2,\)"),
        (
            lambda: rule.test(LeadTest(BEYOND, {"b": 0 * BEYOND}, bounds=(0, 1)), rng, RESAMPLES),
            "want differences in",
        ),
        (lambda: rule.test(LeadTest(NORMAL, {"b": 0 * NORMAL}), rng, 20), "want resamples"),
        (lambda: interval.clopper_pearson(11, 10), "want 0 <= successes"),
    )
    for ask, reason in asks:
        with pytest.raises(ValueError, match=reason):
            ask()


# Intervals


def test_the_interval_of_a_lead_is_that_of_t(rng: np.random.Generator) -> None:
    attack, near = rng.normal(size=(2, 12)) + np.array([[1.0], [0.5]])
    shown = rule.test(LeadTest(attack, {"near": near, "far": near - 5}), rng, RESAMPLES)
    assert shown.strongest_control == "near"
    for error in (0.05, 0.01):
        wanted = stats.ttest_1samp(attack - near, 0).confidence_interval(1 - error)
        assert shown.interval(error) == pytest.approx(tuple(wanted))


def test_the_interval_of_a_lead_is_clipped(rng: np.random.Generator) -> None:
    half = LeadTest(np.array([1.0] * 12 + [0.0] * 2), {"b": np.zeros(14)}, bounds=(0, 1))
    assert (rule.test(half, rng, RESAMPLES).interval(1e-6) or (0, 0))[1] == 1.0
    sure = rule.test(LeadTest(np.ones(15), {"b": np.zeros(15)}, bounds=(0, 1)), rng, RESAMPLES)
    assert sure.interval(0.05) == (sure.lower, 1.0)  # 15 of 15 hits do not prove a rate of 1
    assert sure.lower < 0.9
    without = rule.test(LeadTest(np.ones(15), {"b": np.zeros(15)}), rng, RESAMPLES)
    assert without.interval(0.05) is None


def test_the_interval_of_a_mean_is_t_over_units(rng: np.random.Generator) -> None:
    values, cluster = rng.normal(size=20), np.repeat(["a", "b", "c", "d"], [2, 3, 5, 10])
    shown = interval.mean_interval(values, cluster)
    means = [values[cluster == u].mean() for u in "abcd"]
    wanted = stats.t.interval(0.95, 3, np.mean(means), stats.sem(means))
    assert (shown.lower, shown.upper) == pytest.approx(wanted)
    assert shown.value == pytest.approx(np.mean(means))
    assert shown.n == 4
    shared = interval.mean_interval(values, cluster, shared_variance=0.3)
    wider = stats.t.interval(0.95, 3, np.mean(means), np.sqrt(stats.sem(means) ** 2 + 0.3))
    assert (shared.lower, shared.upper) == pytest.approx(wider)
    alone = interval.mean_interval([3.0])
    assert (alone.value, alone.lower, alone.upper, alone.n) == (3.0, None, None, 1)
    assert alone.reason


def test_the_interval_of_a_count_is_exact() -> None:
    for k, n in ((0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (117, 1000)):
        shown = interval.clopper_pearson(k, n)
        wanted = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
        assert (shown.lower, shown.upper, shown.value) == pytest.approx((wanted.low, wanted.high, k / n))


def test_leakage_is_the_share_above_the_control(rng: np.random.Generator) -> None:
    control, noise = rng.normal(size=(2, 30))
    top = control + 4 + 0.5 * rng.normal(size=30)
    shown = interval.leakage(control + 1 + 0.1 * noise, control, top)
    assert shown.value == pytest.approx(0.25, abs=0.05)
    assert ends(shown)[0] < 0.25 < ends(shown)[1]
    assert interval.leakage(control, control, top).value == 0.0
    assert interval.leakage(top, control, top).value == pytest.approx(1.0)


def test_leakage_without_room_is_null_with_its_reason(rng: np.random.Generator) -> None:
    attack, control, same = rng.normal(size=(3, 30))
    for room in (same, control - 3):
        shown = interval.leakage(attack, control, room)
        assert (shown.value, shown.lower, shown.upper) == (None, None, None)
        assert "does not beat the control" in shown.reason


def test_the_interval_of_leakage_covers_the_truth(rng: np.random.Generator) -> None:
    missed = 0
    for _ in range(500):
        control = rng.normal(size=15)
        shown = interval.leakage(control + 1 + rng.normal(size=15), control, control + 3 + rng.normal(size=15))
        missed += not ends(shown)[0] <= 1 / 3 <= ends(shown)[1]
    assert stats.binom.cdf(missed, 500, 0.05) < 1 - 1e-3
    assert stats.binom.cdf(missed, 500, 0.05) > 1e-3
