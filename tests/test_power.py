"""Power: how often experiments that are drawn anew find a lead."""

import numpy as np
import pytest
from factories import leads
from scipy import stats

from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.resolution import power


def rate(values: Array) -> float:
    return power(values, np.random.default_rng(0), 4000)


def test_the_power_is_that_of_t() -> None:
    """At (t_.975 + t_.8) standard errors four experiments of five find the lead."""
    for units in (30, 60, 200):
        reach = stats.t.ppf(0.975, units - 1) + stats.t.ppf(0.8, units - 1)
        assert rate(leads(reach / units**0.5, units)) == pytest.approx(0.8, abs=0.06)


def test_the_power_rises_with_the_lead() -> None:
    found = [rate(leads(mean)) for mean in (-0.5, 0.0, 0.15, 0.3, 0.5, 1.0)]
    assert found == sorted(found)
    assert found[0] == 0
    assert found[1] == pytest.approx(0.025, abs=0.02)
    assert found[-1] == 1
    assert rate(leads(0.3, sd=2.0)) < rate(leads(0.3))


def test_every_control_must_be_beaten() -> None:
    one, other = leads(0.35), leads(0.0)
    assert rate(np.hstack([one, other])) <= rate(other) < 0.1 < rate(one)


def test_the_power_where_units_hardly_differ() -> None:
    assert rate(np.ones((40, 1))) == 1
    assert rate(np.zeros((40, 1))) == rate(-np.ones((40, 1))) == rate(np.ones((1, 1))) == 0
    assert rate(np.ones((5, 1))) == 0  # 2^-5 > 0.025: five units never suffice
