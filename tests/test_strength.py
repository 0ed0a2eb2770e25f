"""The check of attacks' strength: it reads the best figure of a question, and says which floor is not reached."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _results import results
from strength import FLOORS, Floor, floors, reached, shortfalls

from fdgpriv.results.finding import Results

METHODS = ("stablefdg", "ccst", "pardon", "lsi", "hfedf")


def floor_of(report: Results, **changed: object) -> Floor:
    """A floor at exactly the figure of the first attack on a whole client's artifact."""
    run = report.runs[0]
    row = next(
        row for row in run.attacks if row.headline in row.metrics and row.metrics[row.headline].value is not None
    )
    measured = row.metrics[row.headline]
    rows = [
        other.metrics[row.headline].value
        for other in run.attacks
        if (other.kind, other.secret, other.threat.role) == (row.kind, row.secret, row.threat.role)
        and row.headline in other.metrics
    ]
    known = [value for value in rows if value is not None]
    best = max(known) if measured.direction == "higher_leaks" else min(known)
    bound = "at_least" if measured.direction == "higher_leaks" else "at_most"
    named = {"method": run.method.partition(":")[0], "artifact": row.kind, "adversary": row.threat.role}
    given = {**named, "secret": row.secret, "figure": row.headline, bound: best}
    return Floor.model_validate(given | changed)


def test_a_floor_is_reached_at_its_bound() -> None:
    report = results()
    floor = floor_of(report)
    value = reached(report.runs[0], floor)
    assert value == (floor.at_most if floor.at_least is None else floor.at_least)
    assert shortfalls(report, [floor]) == []
    beyond = {"at_least": floor.at_least + 0.01} if floor.at_least is not None else {"at_most": value - 0.01}  # type: ignore[operator]
    lines = shortfalls(report, [floor.model_copy(update=beyond)])
    assert len(lines) == len([run for run in report.runs if reached(run, floor) == value])
    assert all("want at" in line and f"got {value:.3f}" in line for line in lines)


def test_a_figure_that_is_not_there_is_a_shortfall() -> None:
    report = results()
    floor = floor_of(report, figure="no_such_figure")
    assert all(line.endswith("got no such figure") for line in shortfalls(report, [floor]))
    assert len(shortfalls(report, [floor])) == len(report.runs)


def test_an_unreached_floor_must_not_get_worse() -> None:
    report = results()
    floor = floor_of(report)
    value = reached(report.runs[0], floor)
    assert value is not None
    better = 0.01 if floor.at_least is not None else -0.01
    bound = "at_most" if floor.at_least is None else "at_least"
    known = floor.model_copy(update={bound: value + 2 * better, "so_far": value})
    assert shortfalls(report, [known]) == []
    assert shortfalls(report, [known], so_far=False)
    assert shortfalls(report, [known.model_copy(update={"so_far": value + better})])


def test_floors_of_other_methods_are_not_asked() -> None:
    assert shortfalls(results(), [floor_of(results(), method="another")]) == []


def test_the_file_of_floors_names_all_methods() -> None:
    wanted = floors(FLOORS)
    assert {floor.method for floor in wanted} == set(METHODS)
    keys = [
        (floor.method, floor.artifact, floor.adversary, floor.secret, floor.figure, floor.rounds) for floor in wanted
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_default_audit_reaches_its_floors(method: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fdgpriv.audit", "--method", method, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert shortfalls(Results.load(tmp_path / "run" / "results.json"), floors()) == []
