"""Which defenses a report offers: those that were measured not to end a training first, with unit and what stays open."""

import csv
import io
from pathlib import Path

import pytest

from fdgpriv.defense import Defense, defended
from fdgpriv.evaluation.remedies import COSTS, measured_costs, not_covered, remedies
from fdgpriv.method import Method
from fdgpriv.registry import split
from fdgpriv.simulation.shared_model import GLOBAL_MODEL
from make_costs import PAGE, costs

SIZES = {f"client-{i}": 41 for i in range(30)}


@pytest.mark.parametrize("name", Method.names())
def test_suggested_defenses_apply(name: str) -> None:
    method = Method.named(name)()
    sharing, suggested = method.disclosure(), remedies(method, SIZES)
    assert suggested or not sharing.shares
    for remedy in suggested:
        spec = f"{name}:{','.join(remedy.settings)}" if remedy.settings else name
        _, defense = defended(Method.parse(spec), remedy.defense)
        assert not set(remedy.hides) & set(sharing.individual)
        assert set(remedy.hides) | set(remedy.proves) <= {*sharing.uploads, GLOBAL_MODEL}
        assert (remedy.epsilon is not None) == bool(remedy.proves) == (defense.guarantee().epsilon is not None)
    names = [(split(remedy.defense)[0], remedy.settings) for remedy in suggested]
    assert len(set(names)) == len(names)


def test_no_defense_is_suggested_that_these_clients_cannot_use() -> None:
    method = Method.named("fedavg")()
    assert any(remedy.hides for remedy in remedies(method, SIZES))
    assert not any(remedy.hides for remedy in remedies(method, {"client-0": 41}))  # a sum of one hides nothing


def test_the_shipped_costs_are_those_of_the_page() -> None:
    text = costs(PAGE.read_text(encoding="utf-8"))
    assert COSTS.read_text(encoding="utf-8") == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) >= 7
    for row in rows:
        method, defense = Method.parse(row["method"]), row["defense"]
        assert defended(method, defense)[1].guarantee().epsilon in (8.0, None)
    with pytest.raises(ValueError, match=r"^want a table with the heading"):
        costs("| method |")


def test_stablefdg_takes_styles_of_single_images_first() -> None:
    """With noise for one image, 41 times less than for a client, which ended the training; client_dp ended those of others."""
    first, *others = remedies(Method.parse("stablefdg"), SIZES)
    assert (first.defense, first.settings, first.unit) == ("gaussian:epsilon=8", ("style_mode=eval",), "image")
    assert not first.ended_training
    assert "model_state" in first.not_covered
    last = {remedy.defense for remedy in others if remedy.ended_training}
    assert last == {"gaussian:epsilon=8", "client_dp:epsilon=8"}
    assert [remedy.ended_training for remedy in others] == sorted(remedy.ended_training for remedy in others)
    noises = [
        defended(Method.parse(spec), "gaussian:epsilon=8")[1] for spec in ("stablefdg", "stablefdg:style_mode=eval")
    ]
    ratio = noises[0].deviation(41) / noises[1].deviation(41)
    assert ratio == pytest.approx(41 * noises[0].multiplier / noises[1].multiplier)


def test_a_method_that_already_computes_single_styles_needs_no_setting() -> None:
    (gaussian,) = [
        remedy
        for remedy in remedies(Method.parse("stablefdg:style_mode=eval,rounds=3"), SIZES)
        if remedy.defense == "gaussian:epsilon=8"
    ]
    assert (gaussian.settings, gaussian.unit, gaussian.ended_training) == ((), "image", False)
    assert [cost.method for cost in gaussian.costs] == ["stablefdg:style_mode=eval"]


@pytest.mark.parametrize("name", Method.names())
def test_every_epsilon_has_its_unit_and_delta_and_what_it_leaves_open(name: str) -> None:
    method = Method.named(name)()
    for remedy in remedies(method, SIZES):
        assert (remedy.epsilon is None) == (remedy.unit is None) == (remedy.delta is None)
        shared = set(method.disclosure().uploads)
        if remedy.epsilon is not None:
            assert shared <= set(remedy.proves) | set(remedy.not_covered)
            assert not set(remedy.proves) & set(remedy.not_covered)


def test_costs_of_other_methods_stand_in_where_none_was_measured() -> None:
    assert {cost.method for cost in measured_costs("fedprox", "client_dp:epsilon=8")} >= {"hfedf"}
    assert [cost.method for cost in measured_costs("ccst", "gaussian:epsilon=8")] == ["ccst"]
    assert measured_costs("ccst", "clip") == ()


def test_combined_defenses_have_a_unit_if_they_share_it() -> None:
    method = Method.parse("stablefdg:style_mode=eval")
    for spec, unit in (("gaussian+client_dp", None), ("gaussian:unit=client+client_dp", "client"), ("clip", None)):
        _, defense = defended(method, spec)
        assert defense.guarantee().unit == unit
    guarantee = defended(method, "gaussian")[1].guarantee()
    assert not_covered(("style_statistics", "model_state"), guarantee) == ("model_state",)
    assert not_covered(("style_statistics",), Defense.named("none")().guarantee()) == ()
    assert Path(COSTS).suffix == ".csv"
