"""Accuracies over targets and seeds: the plain means and t intervals, and nothing that is missing is averaged."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from _results import HOSTILE, measured, results
from conftest import undrawn
from fdgpriv.reports.csv import Csv
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown
from scipy import stats

from fdgpriv.results.accuracy import ONE_SEED, RETURNED, RULES, Accuracy, accuracies, is_averaged
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run
from fdgpriv.results.selection import chosen, rounds_to_try
from fdgpriv.results.summary import verdicts
from fdgpriv.results.utility_finding import ChosenUtility, ClientUtility, PersonalUtility, Utility
from fdgpriv.statistics.measured import Measured

Values = Mapping[tuple[str, int], float | None]  # by target and seed: target accuracy, None where training diverged
TARGETS = ("scan", "blend", "type", "outline")
TABLE = "ccuracy over targets and seeds"


def worth(target: float, source: float, own: float | None = None) -> Utility:
    personal = None
    if own is not None:
        client = ClientUtility(client="client-00", source_accuracy=0.99, target_accuracy=own)
        figures = {name: measured(value, 0.001) for name, value in (("target", own), ("source", 0.99))}
        personal = PersonalUtility(
            source_accuracy=figures["source"], target_accuracy=figures["target"], clients=(client,)
        )
    return Utility(
        source_accuracy=measured(source, 0.01),
        target_accuracy=measured(target, 0.01),
        calibration_error=measured(0.1, 0.01),
        personal=personal,
    )


def trained(values: Values, method: str = "fedavg", defense: str = "none", own: float | None = None) -> list[Run]:
    """Runs without attacks; source accuracy is target accuracy plus 0.1, own accuracy target accuracy plus `own`."""
    (run,) = results(defenses=("none",)).runs
    run = run.model_copy(update={"method": method, "defense": defense, "attacks": (), "questions": (), "claims": ()})
    found = []
    for (target, seed), v in values.items():
        utility = None if v is None else worth(v, v + 0.1, None if own is None else v + own)
        found.append(run.model_copy(update={"target": target, "seed": seed, "utility": utility}))
    return found


def report(*groups: list[Run]) -> Results:
    return results().model_copy(update={"runs": tuple(run for group in groups for run in group)})


def made_up(seeds: int, targets: tuple[str, ...] = TARGETS) -> dict[tuple[str, int], float | None]:
    draws = np.random.default_rng(seeds)
    return {(target, seed): float(draws.uniform(0.2, 0.8)) for target in targets for seed in range(seeds)}


def only(*groups: list[Run]) -> Accuracy:
    (row,) = accuracies(report(*groups))
    return row


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_unit_is_the_seed(seeds: int) -> None:
    values = made_up(seeds)
    row = only(trained(values))
    by_seed = [np.mean([values[target, seed] for target in TARGETS]) for seed in range(seeds)]
    wanted = stats.t.interval(0.95, seeds - 1, np.mean(by_seed), stats.sem(by_seed))
    assert row.target.value == pytest.approx(np.mean(by_seed))
    assert row.target.ci95 == pytest.approx(np.clip(wanted, 0, 1))
    assert row.target.n == row.source.n == seeds
    assert row.source.value == pytest.approx(np.mean(by_seed) + 0.1)
    assert row.source.ci95 == pytest.approx(np.clip(np.array(wanted) + 0.1, 0, 1))
    for target in TARGETS:
        assert row.by_target[target].value == pytest.approx(np.mean([values[target, s] for s in range(seeds)]))
    assert (row.left_out, row.missing) == ((), ())
    one = only(trained({key: value for key, value in values.items() if key[1] == 0}))
    assert one.target.value == pytest.approx(by_seed[0])
    assert (one.target.ci95, one.target.n, one.target.reason) == (None, 1, ONE_SEED)


def test_only_whole_seeds_enter_the_mean_and_what_lacks_is_named() -> None:
    """fedavg diverged once and was not trained once; the mean is over the two other seeds."""
    values = made_up(4)
    values["type", 1] = None
    del values["scan", 3]
    first, second = accuracies(report(trained(values), trained(made_up(4), method="ccst")))
    by_seed = [np.mean([values[target, seed] for target in TARGETS]) for seed in (0, 2)]  # type: ignore[misc]
    assert first.target.value == pytest.approx(np.mean(by_seed))
    wanted = stats.t.interval(0.95, 1, np.mean(by_seed), stats.sem(by_seed))
    assert first.target.ci95 == pytest.approx(np.clip(wanted, 0, 1))
    assert first.left_out == (1, 3)
    assert first.missing == ("target type, seed 1: training diverged", "target scan, seed 3: not trained")
    assert [first.by_target[target].n for target in TARGETS] == [3, 4, 3, 4]
    assert first.by_target["type"].value == pytest.approx(np.mean([values["type", s] for s in (0, 2, 3)]))  # type: ignore[misc]
    assert (second.target.n, second.left_out) == (4, ())


def test_no_mean_if_no_seed_has_every_target() -> None:
    """Interrupted at its first target, a method does not look as if it had been tried on all."""
    values = made_up(2)
    values["scan", 0] = values["scan", 1] = None
    row = only(trained(values))
    assert (row.target.value, row.target.reason) == (None, "no seed has every target")
    assert row.by_target["scan"].value is None
    assert row.by_target["blend"].n == 2
    _, second = accuracies(report(trained(made_up(2)), trained(made_up(2, ("scan",)), method="ccst")))
    assert second.target.value is None
    assert len(second.missing) == 6


def test_models_of_their_own_have_a_row_of_their_own() -> None:
    values = made_up(3)
    everyone, own = accuracies(report(trained(values, own=-0.05)))
    assert (everyone.model, own.model) == ("the model for everyone", "each client its own model")
    assert own.target.value == pytest.approx((everyone.target.value or 0) - 0.05)
    assert own.source.value == pytest.approx(0.99)
    values["scan", 2] = None  # diverged once, it lacks in both rows
    assert [row.left_out for row in accuracies(report(trained(values, own=-0.05)))] == [(2,), (2,)]


def test_each_defense_is_a_row() -> None:
    found = accuracies(report(trained(made_up(2)), trained(made_up(3), defense="gaussian:epsilon=1")))
    assert [(row.defense, row.target.n, row.left_out) for row in found] == [
        ("none", 2, (2,)),
        ("gaussian:epsilon=1", 3, ()),
    ]


@undrawn()
def test_runs_that_differ_only_in_defense_have_no_table(tmp_path: Path) -> None:
    assert not is_averaged(results())
    assert is_averaged(results(seeds=2))
    assert accuracies(report()) == ()
    for form in (Html, Markdown):
        assert TABLE not in form().render(results(tmp_path), tmp_path)
        assert TABLE in form().render(results(tmp_path, seeds=2), tmp_path)


@pytest.mark.parametrize("form", [Html, Markdown])
def test_reports_list_accuracies_and_missing_trainings(form: type[Html], tmp_path: Path) -> None:
    values = {("scan", 0): 0.5, ("scan", 1): 0.6, ("scan", 2): 0.25, (HOSTILE, 0): 0.7, (HOSTILE, 1): 0.8}
    text = form().render(report(trained({**values, (HOSTILE, 2): None}, own=0.1)), tmp_path)
    assert "65.0% [1.5, 100.0]" in text.replace("\\", "")  # t = 12.706 with one degree of freedom, times 0.05
    assert "3 seeds" in text  # of scan, whose third seed is in its own column
    for said in ("45.0%", "each client its own model", "1 left out", "seed 2: training diverged"):
        assert said in text
    assert 'Target ">' not in text
    text = form().render(report(trained(made_up(2))), tmp_path)
    assert "Not attacked" in text
    assert "Nothing was attacked, so this says nothing about what fedavg gives away." in text
    assert "Nothing was attacked; why not stands under" in text
    empty = ("0 of 0", "Client leaks", "Strongest attack", "No attack of this audit applies", "attacks at a glance")
    assert not [words for words in empty if words in text]


def test_the_csv_has_the_means_last() -> None:
    values = made_up(2)
    values["scan", 1] = None
    table = list(csv.DictReader(io.StringIO(Csv().render(report(trained(values, own=-0.05)), Path()))))
    means = [row for row in table if row["source"] == "over_seeds"]
    assert means == table[-len(means) :]
    assert [(row["name"], row["metric"], row["target"], row["n"]) for row in means[:3]] == [
        ("the model for everyone", "target_accuracy", "", "1"),
        ("the model for everyone", "source_accuracy", "", "1"),
        ("the model for everyone", "target_accuracy", "scan", "1"),
    ]
    first = accuracies(report(trained(values)))[0]
    assert float(means[0]["value"]) == first.target.value
    assert means[0]["ci_low"] == means[0]["seed"] == ""
    assert "over_seeds" not in Csv().render(results(), Path())


def test_the_printed_lines_have_it_too() -> None:
    values = {("scan", 0): 0.5, ("scan", 1): 0.6, ("blend", 0): 0.7, ("blend", 1): 0.8}
    said = verdicts(report(trained(values), trained({**values, ("blend", 1): None}, method="ccst"))).splitlines()
    assert said[-6:] == [
        "nothing was attacked",
        "accuracy over targets and seeds:",
        "  fedavg, defense none: target 0.650 [0.015, 1.000] (2 seeds); scan 0.550, blend 0.750; source 0.750",
        f"  ccst, defense none: target 0.600 ({ONE_SEED}); scan 0.550, blend 0.700; source 0.700",
        "    minus fedavg, by pairs over 1 seed: returned +0.000",
        "    1 of 2 seeds left out of the means; missing: target blend, seed 1: training diverged",
    ]
    assert "over targets and seeds" not in verdicts(results())


# Which round's model counts


def of_rounds(*rows: tuple[int, float | None, float]) -> dict[str, ChosenUtility | None]:
    """The three rules on made-up rounds: number, source accuracy, target accuracy."""
    found = {}
    for round, source, target in rows:
        unknown = Measured(value=None, direction="higher_better", reason="no image held out")
        known = unknown if source is None else measured(source, 0.05)
        found[round] = worth(target, 0.5).model_copy(update={"source_accuracy": known})
    return chosen(found)


@pytest.mark.parametrize(
    ("rows", "last", "selected", "five"),
    [
        ([(1, 0.5, 0.3)], 1, 1, [1]),
        ([(3, 0.9, 0.2), (1, 0.9, 0.3), (2, 0.9, 0.1)], 3, 1, [1, 2, 3]),  # a tie, and in any order
        ([(r, [0.1, 0.8, 0.8, 0.2, 0.3, 0.7][r - 1], r / 10) for r in range(1, 7)], 6, 2, [2, 3, 4, 5, 6]),
        ([(16, 0.6, 0.2), *((r, 0.6 + r / 100, r / 100) for r in range(28, 33))], 32, 32, [28, 29, 30, 31, 32]),
        ([(1, None, 0.3), (2, 0.1, 0.2), (3, None, 0.1)], 3, 2, [1, 2, 3]),
    ],
    ids=["one", "tie", "six", "gap", "unknown"],
)
def test_the_rules_on_made_up_rounds(
    rows: list[tuple[int, float | None, float]], last: int, selected: int, five: list[int]
) -> None:
    targets = {round: target for round, _, target in rows}
    for rule, rounds in (("last_round", [last]), ("selected_round", [selected]), ("last_five", five)):
        found = of_rounds(*rows)[rule]
        assert found is not None
        assert list(found.rounds) == rounds
        mean = sum(targets[round] for round in rounds) / len(rounds)
        assert found.target_accuracy.value == pytest.approx(mean)
        assert found.target_accuracy.ci95 == pytest.approx((mean - 0.01, mean + 0.01))  # all as wide


def test_nothing_is_selected_where_no_source_accuracy_is_known() -> None:
    found = of_rounds((1, None, 0.3), (2, None, 0.2))
    assert found["selected_round"] is None
    assert found["last_five"] is not None
    assert found["last_five"].source_accuracy.value is None
    assert found["last_five"].target_accuracy.value == pytest.approx(0.25)
    assert chosen({}) == dict.fromkeys(RULES)


def test_the_interval_of_a_mean_over_rounds_is_not_too_narrow() -> None:
    """Against the t interval of each image's mean over the five models, which correlate as they like."""
    draws = np.random.default_rng(0)
    for shared in (0.0, 0.5, 1.0):
        images = (shared * draws.random((1, 400)) + (1 - shared) * draws.random((5, 400)) < 0.5).astype(float)
        rounds = {}
        for round, right in enumerate(images, start=1):
            half = stats.t.ppf(0.975, 399) * stats.sem(right)
            figure = Measured(
                value=right.mean(), ci95=(right.mean() - half, right.mean() + half), direction="higher_better"
            )
            rounds[round] = worth(0.5, 0.5).model_copy(update={"target_accuracy": figure})
        five = chosen(rounds)["last_five"]
        assert five is not None
        assert five.target_accuracy.ci95 is not None
        low, high = stats.t.interval(0.95, 399, images.mean(), stats.sem(images.mean(0)))
        assert five.target_accuracy.ci95[0] <= low + 1e-9
        assert five.target_accuracy.ci95[1] >= high - 1e-9


def test_the_last_five_rounds_are_always_evaluated() -> None:
    assert [sorted(rounds_to_try(rounds, True)) for rounds in (1, 2, 32)] == [[1], [1, 2], [16, 28, 29, 30, 31, 32]]
    assert sorted(rounds_to_try(200, True)) == [100, 196, 197, 198, 199, 200]
    assert sorted(rounds_to_try(3, False)) == [1, 2, 3]


# Differences from FedAvg


def with_rules(runs: list[Run], shift: Mapping[str, float]) -> list[Run]:
    """Runs whose target accuracy by each rule is that of the returned model plus `shift`."""
    told = []
    for run in runs:
        if run.utility is not None:
            one = run.utility.target_accuracy.value or 0
            update = {
                rule: ChosenUtility(
                    rounds=(3,), source_accuracy=measured(0.9, 0.01), target_accuracy=measured(one + shift[rule], 0.01)
                )
                for rule in RULES
            }
            run = run.model_copy(update={"utility": run.utility.model_copy(update=update)})
        told.append(run)
    return told


OURS = {"last_round": 0.01, "selected_round": 0.02, "last_five": 0.03}
THEIRS = {"last_round": 0.0, "selected_round": -0.05, "last_five": 0.1}


def test_rules_and_differences_are_over_pairs_by_the_same_rule() -> None:
    """fedavg lacks one training of seed 1: the differences are over the three other seeds."""
    ours, theirs = made_up(4), {key: v and v / 2 for key, v in made_up(4).items()}
    theirs["type", 1] = None
    fedavg, ccst = accuracies(
        report(with_rules(trained(theirs, "fedavg"), THEIRS), with_rules(trained(ours, "ccst"), OURS))
    )
    assert (fedavg.base, fedavg.leads, ccst.base) == ("", {}, "fedavg")
    assert list(ccst.leads) == [RETURNED, *RULES]
    for rule, lead in ccst.leads.items():
        gain = OURS.get(rule, 0) - THEIRS.get(rule, 0)
        by_seed = [np.mean([(ours[t, s] or 0) - (theirs[t, s] or 0) + gain for t in TARGETS]) for s in (0, 2, 3)]
        assert lead.value == pytest.approx(np.mean(by_seed))
        assert lead.ci95 == pytest.approx(stats.t.interval(0.95, 2, np.mean(by_seed), stats.sem(by_seed)))
        assert lead.n == 3
    for rule, figure in ccst.by_rule.items():
        assert figure.value == pytest.approx((ccst.target.value or 0) + OURS[rule])
        assert figure.n == 4


def test_the_base_is_the_first_fedavg_under_the_same_defense() -> None:
    values = made_up(2)
    rows = accuracies(
        report(
            trained(values, "hfedf", own=-0.05),
            trained(values, "fedavg:network=inception"),
            trained(values, "fedavg"),
            trained(values, "hfedf", "gaussian:epsilon=1"),
        )
    )
    assert [(row.method, row.model, row.defense, row.base) for row in rows] == [
        ("hfedf", "the model for everyone", "none", "fedavg:network=inception"),
        ("hfedf", "each client its own model", "none", "fedavg:network=inception"),
        ("fedavg:network=inception", "", "none", ""),
        ("fedavg", "", "none", "fedavg:network=inception"),
        ("hfedf", "", "gaussian:epsilon=1", ""),
    ]
    assert [row.leads[RETURNED].value for row in rows[:2]] == [pytest.approx(0), pytest.approx(-0.05)]


def test_where_clients_have_own_models_the_rules_are_of_those() -> None:
    everyone, own = accuracies(report(with_rules(trained(made_up(2), "hfedf", own=-0.05), OURS)))
    assert (everyone.by_rule, list(own.by_rule)) == ({}, list(RULES))


VALUES = {("scan", 0): 0.5, ("scan", 1): 0.6}


@pytest.mark.parametrize("form", [Html, Markdown])
def test_reports_have_both_selections(form: type[Html], tmp_path: Path) -> None:
    theirs = {("scan", 0): 0.3, ("scan", 1): 0.5}
    told = report(with_rules(trained(theirs), THEIRS), with_rules(trained(VALUES, "ccst"), OURS))
    text = form().render(told, tmp_path).replace("\\", "")
    for shown in ("best source accuracy", "last round", "mean of the last five", "returned"):
        assert f"Target accuracy, {shown}" in text
    assert "57.0%" in text  # 0.55 and 0.02: ccst's selected round
    assert "+22.0" in text  # (0.2 + 0.1) / 2 + 0.07
    assert "+8.0" in text  # (0.2 + 0.1) / 2 - 0.07
    assert "its difference from fedavg by the same rule" in text
    assert "Target accuracy, last round" not in form().render(report(trained(VALUES)), tmp_path)


def test_the_csv_and_the_printed_lines_have_both_selections() -> None:
    told = report(with_rules(trained(VALUES), THEIRS), with_rules(trained(VALUES, "ccst"), OURS))
    table = list(csv.DictReader(io.StringIO(Csv().render(told, Path()))))
    found = {
        row["metric"]: float(row["value"]) for row in table if row["source"] == "over_seeds" and row["method"] == "ccst"
    }
    assert found["target_accuracy, selected_round"] == pytest.approx(0.57)
    assert found["target_accuracy, selected_round, minus fedavg"] == pytest.approx(0.07)
    _, one = (row for row in table if (row["method"], row["seed"], row["name"]) == ("ccst", "1", "last_five"))
    assert one["metric"] == "target_accuracy"
    assert float(one["value"]) == pytest.approx(0.63)
    assert "minus fedavg, by pairs over 2 seeds: returned +0.000" in verdicts(told)
    assert "selected round 0.570" in verdicts(told)


@pytest.mark.parametrize("form", [Markdown, Html])
def test_no_difference_from_a_fedavg_with_other_weights(form: type, tmp_path: Path) -> None:
    def weighed(runs: list[Run], weights: str | None) -> list[Run]:
        return [run.model_copy(update={"weights": weights}) for run in runs]

    theirs = weighed(with_rules(trained({("scan", 0): 0.3, ("scan", 1): 0.5}), THEIRS), "samples")
    same = weighed(
        with_rules(trained({("scan", 0): 0.4, ("scan", 1): 0.4}, "fedavg:weights=uniform"), THEIRS), "uniform"
    )
    ccst = weighed(with_rules(trained(VALUES, "ccst"), OURS), "uniform")
    why = "ccst weighs clients equally, fedavg not: to compare them, add --method fedavg:weights=uniform"
    other, matching = report(theirs, ccst), report(theirs, same, ccst)
    row = accuracies(other)[1]
    assert (row.base, row.leads, row.unmatched) == ("", {}, why)
    row = accuracies(matching)[2]
    assert (row.base, row.unmatched) == ("fedavg:weights=uniform", "")
    assert row.leads[RETURNED].value == pytest.approx(np.mean(list(VALUES.values())) - 0.4)
    shown = form().render(other, tmp_path).replace("\\", "")
    assert why in shown
    assert "its difference from" not in shown
    assert f"minus fedavg: not available: {why}" in verdicts(other)
    (line,) = (line for line in csv.DictReader(io.StringIO(Csv().render(other, Path()))) if line["reason"] == why)
    assert (line["metric"], line["value"]) == ("target_accuracy, returned, minus fedavg", "")
    assert why not in verdicts(matching) + Csv().render(matching, Path()) + form().render(matching, tmp_path)
