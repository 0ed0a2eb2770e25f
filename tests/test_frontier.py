"""Defenses compared: which are dominated, which is DP at matched accuracy, and what the table and the drawings say."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from _golden import assert_golden
from _results import protected, results
from conftest import undrawn
from fdgpriv.reports._arms import arms
from fdgpriv.reports._frontier import frontier
from fdgpriv.reports._tradeoff import TradeoffRow, dominates, tradeoff, worst_leak
from fdgpriv.reports.csv import Csv
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown

from fdgpriv.results.accuracy import accuracies
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run

NONE = protected("none", (0.67, 0.68, 0.66), {"domain": 3.0, "membership": 1.5})
Runs = tuple[Run, ...]


def report_on(*runs: Runs) -> Results:
    """These runs in one report."""
    return results(defenses=("none",)).model_copy(update={"runs": tuple(run for each in runs for run in each)})


def by_defense(*runs: Runs) -> dict[str, TradeoffRow]:
    return {row.arm.defense: row for row in tradeoff(report_on(*runs))}


def pair(accuracy: float, domain: float | None, membership: float | None = 1.0) -> TradeoffRow:
    """A row of one seed."""
    leads = {"domain": domain, "membership": membership}
    return next(iter(by_defense(protected("x", (accuracy,), leads)).values()))


@pytest.mark.parametrize(
    ("one", "other", "dominated"),
    [
        (pair(0.6, 1.0), pair(0.6, 2.0), True),  # leaks less
        (pair(0.61, 1.0), pair(0.6, 1.0), True),  # is more accurate
        (pair(0.6, 1.0), pair(0.6, 1.0), False),  # the same
        (pair(0.59, 0.0, 0.0), pair(0.6, 3.0, 3.0), False),  # less accurate
        (pair(0.7, 0.5, 1.1), pair(0.6, 3.0, 1.0), False),  # leaks more of one secret
        (pair(0.6, -0.5), pair(0.6, 0.0), False),  # a lead below 0 is no lead
        (pair(0.7, 0.0, None), pair(0.6, 3.0, None), False),  # of a secret that could not be tested nothing is known
    ],
)
def test_a_row_dominates_if_better_and_never_worse(one: TradeoffRow, other: TradeoffRow, dominated: bool) -> None:
    assert dominates(one, other) is dominated
    if dominated:
        assert not dominates(other, one)


def test_secrets_that_are_not_exposed_leak_0() -> None:
    silent = protected("silent", (0.67, 0.68, 0.66), {"membership": 1.5})
    failed = tuple(run.model_copy(update={"defense": "failed", "utility": None, "questions": ()}) for run in NONE)
    found = by_defense(NONE, silent, failed)
    assert found["silent"].leaks["domain"] is None
    assert found["none"].dominated_by == "silent"
    assert [found[name].dominated_by for name in ("silent", "failed")] == [None, None]
    assert not found["failed"].attacked
    other = tuple(run.model_copy(update={"method": "other"}) for run in silent)
    assert tradeoff(report_on(NONE, other))[0].dominated_by is None  # of another method


def test_what_is_sent_in_clear_leaks_more_than_any_lead() -> None:
    """A defense that hides it may dominate; one that sends it too is compared by the other secrets."""

    def in_clear(run: Run) -> Run:
        fact = run.questions[0].model_copy(
            update={"secret": "size", "verdict": "sent_in_clear", "lead": None, "strongest": None, "p": None, "q": None}
        )
        return run.model_copy(update={"questions": (*run.questions, fact)})

    sending = tuple(map(in_clear, NONE))
    hiding = protected("hiding", (0.67, 0.68, 0.66), {"domain": 3.0, "membership": 1.5})
    better = tuple(map(in_clear, protected("better", (0.67, 0.68, 0.66), {"domain": 1.0, "membership": 0.5})))
    found = by_defense(sending, hiding, better)
    assert found["none"].leaks["size"] is not None
    assert found["none"].dominated_by in ("hiding", "better")
    assert dominates(found["hiding"], found["none"])
    assert dominates(found["better"], found["none"])
    assert not dominates(found["none"], found["hiding"])


def noise(epsilon: float, accuracy: Sequence[float], half: float = 0.03) -> Runs:
    return protected(f"gaussian:epsilon={epsilon:g}", accuracy, {"domain": 1.0, "membership": 0.5}, epsilon, half=half)


def matched(*runs: Runs) -> list[str]:
    return [name for name, row in by_defense(*runs).items() if row.matched]


def test_dp_at_matched_accuracy_by_pairs() -> None:
    """Differences -.015, -.012, -.010: mean -.01233, standard error .00145, t(2) = 4.303: [-.0186, -.0061]."""
    close, far = noise(8, (0.655, 0.668, 0.650)), noise(2, (0.60, 0.62, 0.59))
    found = by_defense(NONE, close, far)
    cost = found["gaussian:epsilon=8"].cost
    assert cost.value == pytest.approx(-0.012333, abs=1e-6)
    assert cost.ci95 == pytest.approx((-0.018586, -0.006081), abs=1e-5)
    assert cost.n == 3
    assert matched(NONE, close, far) == ["gaussian:epsilon=8"]
    assert matched(NONE, noise(4, (0.655, 0.668, 0.650)), close) == ["gaussian:epsilon=4"]  # the smaller epsilon
    wide = noise(1, (0.57, 0.73, 0.62))  # differences -.10, .05, -.04: a loss of 2 points is inside the interval
    assert matched(NONE, close, wide) == ["gaussian:epsilon=1"]
    assert matched(NONE, far) == matched(close, far) == []  # none that matches; nothing to match with
    broken = tuple(
        run.model_copy(update={"privacy": run.privacy.model_copy(update={"verdict": "violation"})}) for run in close
    )
    assert matched(NONE, broken) == []


def test_dp_at_matched_accuracy_with_one_seed() -> None:
    base = protected("none", (0.69,), {"domain": 3.0})
    assert matched(base, noise(4, (0.66,), half=0.03)) == ["gaussian:epsilon=4"]  # .69 at most, .67 wanted
    assert matched(base, noise(4, (0.66,), half=0.005)) == []  # .665 at most


def test_cost_is_over_pairs_of_trainings() -> None:
    some = protected("x", (0.60, 0.62), {"domain": 1.0})
    found = by_defense(NONE, some)
    assert found["none"].accuracy.value == pytest.approx(0.67)
    assert found["none"].accuracy.n == 3
    assert found["none"].cost is None
    cost = found["x"].cost
    assert (cost.n, cost.value) == (2, pytest.approx(-0.065))
    assert [one.cost is None for one in accuracies(report_on(some))] == [True]  # nothing to compare with


def test_the_worst_leak_of_a_secret_aware_and_unaware() -> None:
    (arm,) = arms(protected("x", (0.6, 0.6), {"domain": 1.9}, unaware=0.43))
    leak = worst_leak(arm, "domain")
    assert (leak.verdict, leak.calls) == ("leak", (2, 2))
    assert leak.size == pytest.approx(1.9)
    assert leak.unaware.value == pytest.approx(0.43)
    assert (leak.unaware.control_name, leak.unaware.control) == ("mean_image", 0.33)  # the best of .30 and .33
    assert leak.unaware_amount == pytest.approx((0.43 - 0.33) / 0.2)
    assert worst_leak(arm, "size") is None
    (mixed,) = arms([arm.runs[0], *protected("x", (0.6,), {"domain": 0.1})])
    worst = worst_leak(mixed, "domain")
    assert (worst.verdict, worst.calls) == ("leak", (1, 2))
    assert worst.size == pytest.approx(1.0)


@undrawn()
def test_what_the_first_screen_says_of_defenses() -> None:
    """In words of few defenses, in figures of many; with drawings, which have two points or more, and without."""
    runs = (NONE, protected("gaussian:epsilon=8", (0.655, 0.668, 0.65), {"domain": 1.9, "membership": 0.7}, 8, 0.40))
    worse = protected("worse", (0.60, 0.60, 0.60), {"domain": 3.0, "membership": 1.5})
    leads = {"domain": 1.9, "membership": 0.7, "content": 0.3, "labels": 1.2}
    reports = {
        "few": report_on(*runs, worse),
        "two proofs": report_on(*runs, noise(2, (0.60, 0.62, 0.59))),
        "many": report_on(*(protected(f"defense-{i}", (0.6,), leads, unaware=0.4) for i in range(6))),
        "guessing": report_on(*guessing(runs, 0.66), worse),
        "one": report_on(NONE),
    }
    said = []
    for name, report in reports.items():
        sections, drawings = frontier(report)
        said.append(f"{name}:")
        said += [f"  {drawing.caption} {drawing.alt}" for drawing in drawings]
        for section in sections:
            said += [f"  {line}" for line in section.lines]
            rows = section.table.rows if section.table else ()
            said += [
                "  " + " | ".join(f"{cell.text} ({cell.detail})".replace("\n", "; ") for cell in row) for row in rows
            ]
    assert_golden("frontier.txt", "\n".join(said) + "\n")
    few, alone = (Html().render(reports[name], Path("nowhere")) for name in ("few", "one"))
    assert few.index("What defenses cost") < few.index("What leaks to whom")
    assert "What defenses cost" not in alone


def guessing(arms_runs: Sequence[Runs], chance: float) -> tuple[Runs, ...]:
    """The same runs where naming the most frequent class is right so often."""
    return tuple(
        tuple(
            run.model_copy(update={"utility": run.utility and run.utility.model_copy(update={"chance": chance})})
            for run in each
        )
        for each in arms_runs
    )


@undrawn()
def test_evidence_and_csv_have_the_unaware_adversary() -> None:
    whole = report_on(protected("x", (0.6,), {"domain": 1.9}, unaware=0.43))
    said = "accuracy 0.43 [0.33, 0.53]; knowing it adds 0.10 [0.00, 0.20]"
    for report in (Html, Markdown):
        assert said in report().render(whole, Path("nowhere")).replace("\\", "")
    table = list(csv.DictReader(io.StringIO(Csv().render(whole, Path("nowhere")))))
    found = {(row["source"], row["name"]): float(row["value"]) for row in table if "unaware" in row["source"]}
    assert found == {
        ("unaware", ""): 0.43,
        ("unaware_control", "noise"): 0.3,
        ("unaware_control", "mean_image"): 0.33,
        ("knowing_minus_unaware", ""): 0.1,
    }
