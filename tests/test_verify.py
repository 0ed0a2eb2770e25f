"""fdgpriv verify: a run as it was written agrees; each altered or missing figure, score, table, file and report is found."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from conftest import audits_of, shortened
from test_audit_recording import given, record

import fdgpriv
from fdgpriv import audit
from fdgpriv.data.dataset import Dataset
from fdgpriv.results.score_tables import ScoreTables
from fdgpriv.utils.checksum import SUMS, digest, read_sums
from fdgpriv.verify import main

WORDS = ["--method", "fedavg", "--preset", "quick", "--clients", "6", "--set", "rounds=2", "local_epochs=1"]
WORDS += ["--attack", "label_histogram:simulations=6", "client_size", "--threat", "server"]
CELL = "fedavg-blend-0-none"
SCORES = f"scores/{CELL}/label_histogram_simulations=6@server-model_state.zip"


@pytest.fixture(scope="module", autouse=True)
def _few_digits(digits: Dataset) -> Iterator[None]:
    with audits_of(shortened(digits, 64), drawn=False):
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, _few_digits: None) -> Path:
    """The folder of an audit that ran through."""
    out = tmp_path_factory.mktemp("verify") / "run"
    assert audit.main([*WORDS, "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def differences(run: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines of differences; the exit code must go with them."""
    capsys.readouterr()
    code = main([str(run), *words])
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("note: ")]
    assert code == (4 if lines[:-1] else 0)
    assert lines.pop().startswith(f"{run}: {len(lines)} difference" if lines else f"{run}: all agree: ")
    return lines


def with_new_sums(run: Path) -> None:
    """Makes the SHA-256 fit what lies there."""
    sums = read_sums(run)
    (run / SUMS).write_text("".join(f"{digest(run / name)}  {name}\n" for name in sums if (run / name).is_file()))


def altered(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes results.json, and makes the SHA-256 fit."""
    content = json.loads((run / "results.json").read_text())
    change(content["runs"][0])
    (run / "results.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    with_new_sums(run)


def test_a_run_as_written_agrees(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main([str(run)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    counts = {name: int(count) for count, name in re.findall(r"(\d+) ([a-z ]+)", line.partition("all agree: ")[2])}
    content = fdgpriv.Results.load(run).runs[0]
    assert counts["score tables"] == len(list((run / "scores").rglob("*.zip"))) >= 3
    assert (counts["attacks"], counts["questions"]) == (len(content.attacks), len(content.questions))
    assert counts["files"] == len(before) - 2  # but for itself and the lock
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


ALTERED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "resolution": (
        lambda run: run["questions"][0].update(resolution=0.987),
        rf"^{CELL}: questions \(model_state, .*\.resolution: 0.987 in results.json, [\d.]+ by the scores$",
    ),
    "verdict": (
        lambda run: run["questions"][0].update(verdict="no_leak_found", grade=None, grade_interval=None),
        "verdict: .no_leak_found. in results.json|results.json: want results of schema",
    ),
    "accuracy": (
        lambda run: run["utility"]["target_accuracy"].update(value=0.99, ci95=[0.9, 1.0]),
        f"{CELL}: utility.target_accuracy.value: 0.99 in results.json",
    ),
    "ledger": (lambda run: run["artifacts"][0].update(times=1), r": artifacts\[0\].times: 1 in results.json"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_result_is_found(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, told = ALTERED[name]
    altered(run, change)
    assert any(re.search(told, line) for line in differences(run, capsys))


def test_an_altered_score_is_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = ScoreTables.load_archive(run / SCORES)
    values = pc.if_else(pc.equal(tables.scores["role"], "attack"), 1.9, tables.scores["value"])
    column = tables.scores.schema.get_field_index("value")
    scores = tables.scores.set_column(column, tables.scores.schema.field(column), values)
    replace(tables, scores=scores).save_archive(run / SCORES)
    with_new_sums(run)
    first, second, *others = differences(run, capsys)
    assert first == f"{SCORES}: its rows are not those of scores.parquet"
    assert re.fullmatch(
        rf'{CELL}: questions \(model_state, .*\.verdict: "leak" in results.json, "[a-z_]+" by the scores', second
    )
    assert any(": attacks label_histogram@server on model_state" in line for line in others)


@pytest.mark.parametrize("name", [SCORES, "evaluations.parquet", "report.md"])
def test_a_removed_file_is_found(run: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (run / name).unlink()
    (line, *_) = differences(run, capsys)
    assert line == f"{name}: missing"
    with_new_sums(run)  # forgets it
    assert differences(run, capsys)


@pytest.mark.parametrize("name", ["report.html", f"transcript/{CELL}/model.safetensors", SCORES])
def test_an_altered_file_is_found(run: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    data = bytearray((run / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run / name).write_bytes(data)
    (line,) = differences(run, capsys)
    assert line.startswith(f"{name}: changed since the run")
    with_new_sums(run)
    (line,) = differences(run, capsys)
    assert line.startswith(f"{name}: ")


def test_sums_are_of_all_files_and_wanted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(run / SCORES, run / "scores" / CELL / "more.zip")
    text = (run / "results.json").read_text()
    (run / "results.json").write_text(re.sub(r'"peak_rss_mb": [\d.]+', '"peak_rss_mb": 1.0', text))  # not judged again
    lines = differences(run, capsys)
    assert f"scores/{CELL}/more.zip: not of this run: {SUMS} does not have it" in lines
    assert any(line.startswith("results.json: changed since the run") for line in lines)
    (run / SUMS).unlink()
    assert any(line.startswith(f"{SUMS}: want a file") for line in differences(run, capsys))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "want one RUN"),
        (["{run}", "{run}"], "want one RUN"),
        (["{run}/scores"], "want the folder of a finished audit"),
        (["{run}/none"], "which does not exist"),
        (["{run}", "--recording", "{run}"], "want an audit of a recording"),
        (["{run}", "--out", "x"], "want one of the options"),
    ],
)
def test_bad_usage_is_one_line(
    finished: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main([word.format(run=finished) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_table_of_a_thinned_run_needs_its_training(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / SCORES).unlink()
    capsys.readouterr()
    assert audit.main([*WORDS, "--out", str(run), "--resume"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert (
        f"want {run / SCORES}, got none, and {run / 'transcript' / CELL} no longer has the models of all rounds" in line
    )


@pytest.mark.slow
def test_a_run_with_a_failure_is_not_thinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*given: Any) -> Any:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr("fdgpriv.cell_runner.measure", broken)
        assert audit.main([*WORDS, "--out", str(tmp_path / "run")]) == 1
    assert '"keep": "views"' in (tmp_path / "run" / "transcript" / CELL / "manifest.jsonl").read_text()
    assert audit.main([*WORDS, "--out", str(tmp_path / "run"), "--resume"]) == 0
    assert differences(tmp_path / "run", capsys) == []


@pytest.mark.slow
def test_claims_are_decided_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--method", "stablefdg", "fedavg", *WORDS[2:]]
    assert audit.main([*words, "--out", str(tmp_path / "run")]) == 0
    assert differences(tmp_path / "run", capsys) == []
    run = fdgpriv.Results.load(tmp_path / "run").runs[0]
    decided = next(i for i, claim in enumerate(run.claims) if claim.verdict is not None)
    altered(tmp_path / "run", lambda content: content["claims"][decided].update(measurement="changed"))
    lines = differences(tmp_path / "run", capsys)
    assert any(f": claims {run.claims[decided].id}.measurement: " in line for line in lines)


@pytest.mark.slow
def test_an_audit_of_a_recording_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording, out = record(tmp_path / "recording"), tmp_path / "run"
    quick: dict[str, Any] = {"preset": "quick", "attacks": ["client_size", "linkage"], "threats": ["server"]}
    fdgpriv.audit_recording(recording, **given(**quick), out=out)
    assert differences(out, capsys) == []
    assert differences(out, capsys, "--recording", str(recording)) == []
    value = fdgpriv.Results.load(out).runs[0].questions[0].resolution
    altered(out, lambda content: content["questions"][0].update(resolution=(value or 0.0) + 0.1))
    assert any(".resolution: " in line for line in differences(out, capsys))
    shutil.rmtree(recording)
    record(recording, rounds=3)
    assert any(
        line.startswith(f"{recording}: another recording")
        for line in differences(out, capsys, "--recording", str(recording))
    )
