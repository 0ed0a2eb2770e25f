"""The results contract: what it accepts, what it refuses, and that a file comes back as it was written."""

import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from _results import HOSTILE, results
from factories import refused
from factories_findings import finding as finding_of
from factories_findings import question
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fdgpriv.results import finding
from fdgpriv.results.attack_finding import AttackFinding, CurvePoint, Leakage
from fdgpriv.results.finding import Results, schema_text
from fdgpriv.results.question import Question
from fdgpriv.results.records import by_question, by_run
from fdgpriv.results.run import Privacy, Run, RunFigure
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Verdict

SCHEMA = Path(finding.__file__).with_name("schema.json")
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(min_size=1, max_size=20)
figures = st.builds(
    Measured,
    value=finite,
    ci95=st.none() | st.tuples(finite, finite).map(lambda ends: (min(ends), max(ends))),
    n=st.none() | st.integers(0, 10**9),
    direction=st.sampled_from(["higher_leaks", "lower_leaks", "neutral"]),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | finite | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def raw() -> Any:
    """The file as plain JSON."""
    return json.loads(results().text())


def test_the_shipped_schema_is_generated_and_valid() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text()
    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(raw(), schema)
    bad = raw()
    bad["runs"][0]["attacks"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(bad, schema)


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = results(seeds=2)
    written.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == written
    assert Results.load(tmp_path / "results.json").text() == (tmp_path / "results.json").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@settings(max_examples=25, deadline=None)
@given(
    table=st.dictionaries(texts, figures, min_size=1, max_size=4),
    words=st.lists(texts, max_size=3),
    images=st.none() | st.integers(1, 10**6),
    config=st.dictionaries(st.text(max_size=8), json_values, max_size=4),
)
def test_any_figures_and_settings_survive_the_file(
    table: dict[str, Measured], words: list[str], images: int | None, config: dict[str, Any]
) -> None:
    base = results(defenses=("none",)).model_dump()
    attack = base["runs"][0]["attacks"][0]
    base["runs"][0].update(attacks=[attack], questions=[])
    attack["metrics"] = {**attack["metrics"], **{name: value.model_dump() for name, value in table.items()}}
    attack["controls"] = {**attack["controls"], **dict.fromkeys(words, attack["metrics"])}
    point = CurvePoint(images=images, units=3, value=next(iter(table.values())), controls=table)
    attack["curve"] = [point.model_dump()]
    attack["reason"] = "".join(words)
    written = Results.model_validate({**base, "config": config})
    with tempfile.TemporaryDirectory() as folder:
        written.save(Path(folder) / "results.json")
        read = Results.load(Path(folder) / "results.json")
    assert read == written
    assert read.text() == written.text()


def test_equal_results_are_equal_bytes_in_any_order() -> None:
    def backwards(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: backwards(value[name]) for name in reversed(value)}
        return [backwards(entry) for entry in value] if isinstance(value, list) else value

    assert list(backwards(raw())) != list(raw())
    assert Results.model_validate(backwards(raw())).text() == results().text()


def test_equal_runs_differ_only_in_timing() -> None:
    slow = {**raw(), "environment": {"host": "another"}, "timing": {**raw()["timing"], "total_s": 9.0}}
    other = {**raw(), "config": {"rounds": 6}}
    assert Results.model_validate(slow).text() != results().text()
    assert Results.model_validate(slow).comparable() == results().comparable()
    assert Results.model_validate(other).comparable() != results().comparable()


NO_LEAD = {"p": None, "q": None, "p_holm": None, "strongest": None}
GOOD_ATTACK = finding_of("gan", "psnr", 15.9, "leak").model_dump()
OPEN = {"value": None, "verdict": "inconclusive"}
FAILED = {"utility": None, "attacks": (), "questions": (), "failed": "client-01 failed in fit of round 0: a bug"}


def attack(**changes: Any) -> AttackFinding:
    return AttackFinding.model_validate({**GOOD_ATTACK, **changes})


def asked(of: Verdict, /, **changes: Any) -> Question:
    return Question.model_validate({**question(of).model_dump(), **changes})


def run(**changes: Any) -> Run:
    return Run.model_validate({**dict(results().runs[0]), **changes})


def privacy(proved: float | None, measured: dict[str, float], verdict: str) -> Privacy:
    given = {"epsilon_proved": proved, "delta": None, "statement": "s", "epsilon_measured": measured}
    return Privacy.model_validate({**given, "verdict": verdict})


REFUSED: tuple[tuple[Callable[[], object], str], ...] = (
    # a verdict against its numbers
    (lambda: asked("leak", p=0.0251), "want p <= 0.025 and q <= 0.05 for a leak"),
    (lambda: asked("leak", q=0.0501), "want p <= 0.025 and q <= 0.05 for a leak"),
    (lambda: asked("leak", **NO_LEAD), "for a leak, got None"),
    (lambda: asked("leak", strongest=None), "want the strongest attack"),
    (lambda: asked("leak", inconclusive_because="too_coarse"), "exactly where inconclusive"),
    (lambda: asked("leak", grade=None), "want a grade exactly where a leak was found"),
    (lambda: asked("leak", verdict="certain"), "leak"),
    (lambda: asked("no_leak_found", p=0.025), "want p > 0.025 and q > 0.05"),
    (lambda: asked("no_leak_found", q=0.05), "want p > 0.025 and q > 0.05"),
    (lambda: asked("no_leak_found", upper_bound=0.1), "want upper_bound < relevant"),
    (lambda: asked("no_leak_found", planted=0.79), "want planted >= 0.8"),
    (lambda: asked("no_leak_found", planted=None), "want planted >= 0.8"),
    (lambda: asked("no_leak_found", grade="trace"), "want a grade exactly where a leak was found"),
    (lambda: asked("no_leak_found", strongest=None), "want the strongest attack"),
    (lambda: asked("inconclusive", inconclusive_because=None), "exactly where inconclusive"),
    (lambda: asked("inconclusive", inconclusive_because="bad_luck"), "weak_attack"),
    # an incomplete attack
    (lambda: attack(headline="ssimm"), "among the metrics"),
    (lambda: attack(leakage={}), "want tests by scope, or a reason"),
    (lambda: attack(leakage={"client": OPEN}), "want a reason for the client verdict"),
    (lambda: attack(leakage={"client": {**OPEN, "ci95": (0.0, 1.0), "verdict": "leak"}}), "want no interval"),
    (lambda: attack(secret="weather"), "domain"),
    (lambda: attack(figures=["../secret.png"]), "relative"),
    # a run that failed has neither utility nor attacks; each run is there once, and asks its own attacks
    (
        lambda: run(**{**FAILED, "utility": results().runs[0].utility}),
        "want no utility and no attacks of a run that failed",
    ),
    (lambda: run(**{**FAILED, "attacks": results().runs[0].attacks}), "want no utility and no attacks of a run that"),
    (lambda: Results.model_validate({**raw(), "runs": raw()["runs"][:1] * 2}), "each run once"),
    (lambda: run(attacks=results().runs[0].attacks[:1]), "want questions about the run's 1 attacks, got number"),
    # null wants a reason and no interval
    (lambda: Measured(value=None, direction="neutral"), "want a reason"),
    (lambda: Measured(value=None, ci95=(0.0, 1.0), direction="neutral", reason="no weights"), "want no interval"),
    (lambda: Measured(value=0.5, ci95=(1.0, 0.0), direction="neutral"), r"\[low, high\]"),
    # no epsilon without a proof, no verdict on it without a measurement
    (lambda: privacy(None, {}, "not_measured"), "want no_guarantee exactly"),
    (lambda: privacy(4.0, {}, "no_guarantee"), "want no_guarantee exactly"),
    (lambda: privacy(4.0, {}, "consistent"), "want a measured epsilon"),
    (lambda: privacy(None, {"gdp": 1.0}, "consistent"), "want no_guarantee exactly"),
)


def test_what_contradicts_itself_is_refused() -> None:
    for make, wanted in REFUSED:
        with pytest.raises(ValidationError, match=wanted):
            make()


def test_what_is_consistent_is_accepted() -> None:
    for verdict in ("leak", "no_leak_found", "inconclusive"):
        assert asked(verdict).verdict == verdict
    for verdict in ("inconclusive", "not_applicable"):
        assert asked(verdict, **NO_LEAD).strongest is None
    assert attack().main == attack().leakage["client"]
    assert run(**FAILED).failed == FAILED["failed"]


def test_no_number_is_nan_or_infinite() -> None:
    for value in (math.nan, math.inf, -math.inf):
        for make in (
            lambda: Measured(value=value, direction="neutral"),  # noqa: B023
            lambda: Measured(value=0.0, ci95=(0.0, value), direction="neutral"),  # noqa: B023
            lambda: Leakage(value=0.0, p=value, verdict="leak"),  # noqa: B023
            lambda: Results.model_validate({**raw(), "config": {"deep": [{"lr": value}]}}),  # noqa: B023
        ):
            with pytest.raises(ValidationError):
                make()


def test_a_figure_lies_in_the_folder_of_the_run() -> None:
    for name in ("/etc/passwd", "../a.png", "a/../../b.png", "C:\\a.png", "file:a.png", "", "."):
        with pytest.raises(ValidationError):
            RunFigure(file=name, caption="")


def test_control_characters_are_made_visible() -> None:
    figure = RunFigure(file="a.png", caption="a\x00b\u202ec\ud800d\ne")
    assert figure.caption == "a�b�c�d\ne"
    assert HOSTILE.replace("\u202e", "�") in results().text().replace('\\"', '"')
    assert "\u202e" not in results().text()


def _with(change: Callable[[Any], None]) -> str:
    data = raw()
    change(data)
    return json.dumps(data)


DAMAGED: dict[str, Callable[[], str]] = {
    "truncated": lambda: results().text()[:900],
    "empty": lambda: "",
    "not an object": lambda: "[1, 2]",
    "deep": lambda: "[" * 50_000,
    "deep settings": lambda: '{"config": {"a": ' + "[" * 50_000,
    "another schema": lambda: _with(lambda d: d.update(schema=1)),
    "unknown name": lambda: _with(lambda d: d["runs"][0].update({"x\n\ny": 1})),
    "missing name": lambda: _with(lambda d: d["runs"][0].pop("privacy")),
    "text for a number": lambda: _with(lambda d: d["runs"][0].update(seed="0")),
    "number for a claim": lambda: _with(lambda d: d.update(interrupted=1)),
    "NaN": lambda: _with(lambda d: d["runs"][0]["attacks"][0]["metrics"]["psnr"].update(value=math.nan)),
    "overflow": lambda: _with(lambda d: d.update(config={"lr": 1})).replace('"lr": 1', '"lr": 1e999'),
    "traversal": lambda: _with(lambda d: d["runs"][0]["figures"][0].update(file="../../x.png")),
}


def test_a_damaged_file_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    for name, text in DAMAGED.items():
        path.write_text(text(), encoding="utf-8")
        with refused(r"results\.json") as caught:
            Results.load(path)
        assert type(caught.value) is ValueError, name
        assert len(str(caught.value)) < 800, name
    (tmp_path / "binary.json").write_bytes(b"\x80\x04\x95\xff\xfe")
    for path in (tmp_path / "binary.json", tmp_path / "gone.json", tmp_path):
        with refused("want"):
            Results.load(path)
    monkeypatch.setattr(finding, "LARGEST_FILE", 100)
    results().save(tmp_path / "large.json")
    with refused("at most 100 bytes"):
        Results.load(tmp_path / "large.json")


def test_a_save_that_fails_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    path = tmp_path / "results.json"
    results(seeds=1).save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        results(seeds=2).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_the_matrix_has_every_question_once() -> None:
    runs = results(seeds=2).runs
    asked = [(run.seed, q.adversary, q.artifact, q.secret, q.scope, q.verdict) for run in runs for q in run.questions]
    names = ("seed", "adversary", "artifact", "secret", "scope", "verdict")
    assert [tuple(row[name] for name in names) for row in by_question(runs)] == [
        row for row in asked if row[-1] != "not_applicable"
    ]


def test_the_frontier_has_a_row_for_each_run() -> None:
    runs = results(seeds=2).runs
    rows = by_run(runs)
    assert [(row["defense"], row["seed"]) for row in rows] == [(run.defense, run.seed) for run in runs]
    for row, run in zip(rows, runs, strict=True):
        assert row.keys() == rows[0].keys()
        assert row["epsilon_proved"] == run.privacy.epsilon_proved
        assert row["target_accuracy"] == run.utility.target_accuracy.value
        assert row["leak"] == sum(q.verdict == "leak" for q in run.questions) > 0
        leads: dict[str, list[float]] = {}
        for q in run.questions:
            if q.verdict == "leak":
                leads.setdefault(q.secret, []).append(max(0.0, q.lead.value / q.relevant))
        for secret, values in leads.items():
            assert (row[f"verdict_{secret}"], row[f"leakage_{secret}"]) == ("leak", pytest.approx(max(values)))
