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
from _results import HOSTILE, missing, results
from factories import refused
from factories_findings import finding as row
from factories_findings import question
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fdgpriv.results import finding
from fdgpriv.results.attack_finding import AttackFinding, CurvePoint, Leakage
from fdgpriv.results.finding import Results, schema_text
from fdgpriv.results.question import Question
from fdgpriv.results.records import by_matrix_cell, by_run
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


NAMES = {
    "runs.0": "method dataset target seed defense utility artifacts attacks privacy claims figures images not_measured"
    " training failed diverged failures questions weights remedies",
    "runs.0.artifacts.0": "kind level verb from to via per_client_per_round_bytes shape dtype times samples_behind"
    " visible_to",
    "runs.0.questions.0": "artifact level adversary secret scope also verdict grade grade_interval share_of_achievable lead"
    " strongest p q p_holm beyond_doubt resolution upper_bound planted relevant inconclusive_because reason recovered attacks",
    "runs.0.attacks.0": "attack task secret artifact shared threat n headline chance metrics controls upper_bounds"
    " positive_control curve rounds view unaware units apart trust leakage reason failed figures",
    "runs.0.attacks.0.leakage.client": "value ci95 p control lead resolution upper_bound relevant against planted marked"
    " share_of_achievable grade verdict why reason",
    "runs.0.attacks.0.curve.0": "images units value controls",
    "runs.0.attacks.0.units": "kind n federated shadows",
    "runs.0.attacks.0.metrics.psnr": "value ci95 n direction reason",
    "runs.0.claims.0": "id kind quote measurement evidence verdict reason failed",
    "runs.0.privacy.epsilon_measured": "clopper_pearson gdp one_run one_run_ceiling",
    "timing": "total_s train_s attack_s peak_rss_mb",
}


def test_the_names_are_those_of_the_contract() -> None:
    data = raw()
    assert data["schema"] == 3
    assert {"fdgpriv", "config", "environment", "timing", "runs", "dataset", "interrupted"} <= set(data)
    for place, names in NAMES.items():
        at = data
        for step in place.split("."):
            at = at[int(step) if step.isdigit() else step]
        assert set(names.split()) == set(at), place


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


def test_questions_are_about_their_run_s_attacks() -> None:
    run = results().runs[0]
    with pytest.raises(ValidationError, match="want questions about the run's 1 attacks, got number"):
        Run.model_validate({**dict(run), "attacks": run.attacks[:1]})


def test_a_failed_run_has_neither_utility_nor_attacks() -> None:
    run = results().runs[0]
    assert run.utility is not None
    nothing = {
        "utility": None,
        "attacks": (),
        "questions": (),
        "failed": "client-01 failed in fit of round 0: ValueError: a bug",
    }
    assert Run.model_validate({**dict(run), **nothing}).failed == nothing["failed"]
    for field in ("utility", "attacks"):
        with pytest.raises(ValidationError, match="want no utility and no attacks of a run that failed"):
            Run.model_validate({**dict(run), **nothing, field: getattr(run, field)})
    with pytest.raises(ValidationError, match="each run once"):
        Results.model_validate({**raw(), "runs": [run.model_dump(by_alias=True)] * 2})


def test_no_number_is_nan_or_infinite() -> None:
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValidationError, match="finite"):
            Measured(value=value, direction="neutral")
        with pytest.raises(ValidationError):
            Measured(value=0.0, ci95=(0.0, value), direction="neutral")
        with pytest.raises(ValidationError):
            Leakage(value=0.0, p=value, verdict="leak")
        with pytest.raises(ValidationError, match="finite"):
            Results.model_validate({**raw(), "config": {"deep": [{"lr": value}]}})


def test_null_wants_a_reason_and_no_interval() -> None:
    with pytest.raises(ValidationError, match="want a reason"):
        Measured(value=None, direction="neutral")
    with pytest.raises(ValidationError, match="want no interval"):
        Measured(value=None, ci95=(0.0, 1.0), direction="neutral", reason="no weights")
    with pytest.raises(ValidationError, match=r"\[low, high\]"):
        Measured(value=0.5, ci95=(1.0, 0.0), direction="neutral")
    assert missing("no weights").value is None


NO_LEAD = {"p": None, "q": None, "p_holm": None, "strongest": None}


BAD_VERDICTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("leak", {"p": 0.0251}, "want p <= 0.025 and q <= 0.05 for a leak"),
    ("leak", {"q": 0.0501}, "want p <= 0.025 and q <= 0.05 for a leak"),
    ("leak", NO_LEAD, "for a leak, got None"),
    ("leak", {"strongest": None}, "want the strongest attack"),
    ("leak", {"inconclusive_because": "too_coarse"}, "exactly where inconclusive"),
    ("leak", {"grade": None}, "want a grade exactly where a leak was found"),
    ("leak", {"verdict": "certain"}, "leak"),
    ("no_leak_found", {"p": 0.025}, "want p > 0.025 and q > 0.05"),
    ("no_leak_found", {"q": 0.05}, "want p > 0.025 and q > 0.05"),
    ("no_leak_found", {"upper_bound": 0.1}, "want upper_bound < relevant"),
    ("no_leak_found", {"planted": 0.79}, "want planted >= 0.8"),
    ("no_leak_found", {"planted": None}, "want planted >= 0.8"),
    ("no_leak_found", {"grade": "trace"}, "want a grade exactly where a leak was found"),
    ("no_leak_found", {"strongest": None}, "want the strongest attack"),
    ("inconclusive", {"inconclusive_because": None}, "exactly where inconclusive"),
    ("inconclusive", {"inconclusive_because": "bad_luck"}, "weak_attack"),
)


def test_a_verdict_against_its_numbers_is_refused() -> None:
    for verdict, changes, wanted in BAD_VERDICTS:
        good = question(verdict).model_dump()  # type: ignore[arg-type]
        assert Question.model_validate(good).verdict == verdict
        with pytest.raises(ValidationError, match=wanted):
            Question.model_validate({**good, **changes})


def test_an_untested_question_needs_no_numbers() -> None:
    verdicts: tuple[Verdict, ...] = ("inconclusive", "not_applicable")
    for verdict in verdicts:
        assert Question.model_validate({**question(verdict).model_dump(), **NO_LEAD}).strongest is None


def test_an_incomplete_attack_is_refused() -> None:
    good = row("gan", "psnr", 15.9, "leak").model_dump()
    assert AttackFinding.model_validate(good).main == AttackFinding.model_validate(good).leakage["client"]
    for changes, wanted in (
        ({"headline": "ssimm"}, "among the metrics"),
        ({"leakage": {}}, "want tests by scope, or a reason"),
        ({"leakage": {"client": {"value": None, "verdict": "inconclusive"}}}, "want a reason for the client verdict"),
        ({"leakage": {"client": {"value": None, "ci95": (0.0, 1.0), "verdict": "leak"}}}, "want no interval"),
        ({"secret": "weather"}, "domain"),
        ({"figures": ["../secret.png"]}, "relative"),
    ):
        with pytest.raises(ValidationError, match=wanted):
            AttackFinding.model_validate({**good, **changes})


def test_no_epsilon_without_a_proof() -> None:
    for epsilon, found, verdict in (
        (None, {}, "not_measured"),
        (4.0, {}, "no_guarantee"),
        (4.0, {}, "consistent"),
        (None, {"gdp": 1.0}, "consistent"),
    ):
        given = {"epsilon_proved": epsilon, "delta": None, "statement": "s", "epsilon_measured": found}
        with pytest.raises(ValidationError):
            Privacy.model_validate({**given, "verdict": verdict})


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


def test_the_matrix_has_the_worst_verdicts() -> None:
    made_up = results(seeds=2)
    rows = by_matrix_cell(made_up.runs)
    asked = [(run, question) for run in made_up.runs for question in run.questions]
    key = ("method", "target", "seed", "defense", "adversary", "artifact", "secret")
    assert len({tuple(one[name] for name in key) for one in rows}) == len(rows)
    for found in rows:
        same = [
            q for run, q in asked
            if [run.method, run.target, run.seed, run.defense, q.adversary, q.artifact, q.secret] == [found[n] for n in key]
        ]  # fmt: skip
        verdicts = {q.verdict for q in same}
        for verdict in ("leak", "inconclusive", "no_leak_found", "not_applicable"):
            if verdict in verdicts:
                break
        assert found["verdict"] == verdict
        assert any((q.scope, q.verdict) == (found["scope"], verdict) for q in same)
    assert sum(1 for _ in rows) == len({(id(run), q.adversary, q.artifact, q.secret) for run, q in asked})


def test_the_frontier_has_a_row_for_each_run() -> None:
    made_up = results(seeds=2)
    rows = by_run(made_up.runs)
    assert [(one["defense"], one["seed"]) for one in rows] == [(run.defense, run.seed) for run in made_up.runs]
    for found, run in zip(rows, made_up.runs, strict=True):
        assert found["epsilon_proved"] == run.privacy.epsilon_proved
        assert found["target_accuracy"] == (run.utility.target_accuracy.value if run.utility else None)
        assert found["leak"] == sum(q.verdict == "leak" for q in run.questions)
        for secret in {q.secret for q in run.questions}:
            asked = [q for q in run.questions if q.secret == secret]
            leaks = [q for q in asked if q.verdict == "leak"]
            if leaks:
                leads = [max(0.0, (q.lead.value or 0.0) / (q.relevant or 1.0)) for q in leaks if q.lead]
                assert found[f"verdict_{secret}"] == "leak"
                assert found[f"leakage_{secret}"] == pytest.approx(max(leads))
    assert any(one["leak"] for one in rows)
    assert all(set(one) == set(rows[0]) for one in rows)
