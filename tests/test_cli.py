"""A whole audit by the command line and what it leaves; the same again, interrupted, and resumed."""

import csv
import json
import re
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import TARGET, audits_of, shortened, undrawn
from pydantic import TypeAdapter

from fdgpriv.attack import Attack
from fdgpriv.audit import main
from fdgpriv.data.dataset import Dataset
from fdgpriv.data.digits import SHA256
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.federation.transcript import MANIFEST, TENSORS
from fdgpriv.report import Report
from fdgpriv.results.finding import Results
from fdgpriv.runner import Runner
from fdgpriv.training import Trained
from fdgpriv.utils.checksum import read_json
from fdgpriv.utils.console import ProgressLog

SHORT = ["--preset", "quick", "--clients", "6", "--set", "rounds=1", "local_epochs=1"]
ATTACKS = ["--attack", "class_probe", "identification:simulations=12", "--threat", "server"]
SMALL = [*SHORT, *ATTACKS]
WHOLE = [*SMALL, "--defense", "none", "gaussian:epsilon=0.5"]


@pytest.fixture(scope="module", autouse=True)
def _few_digits(digits: Dataset) -> Iterator[None]:
    """Audits of `digits` here are of 128 images a domain, of which two shadow clients a domain can be made."""
    with audits_of(shortened(digits, 128)):
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, _few_digits: None) -> Path:
    """The folder of an audit of two runs by two attacks that ran through."""
    out = tmp_path_factory.mktemp("audit") / "out"
    assert main([*WHOLE, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, _few_digits: None) -> Path:
    """The folder of an audit of one row by one adversary, without figures."""
    out = tmp_path_factory.mktemp("small") / "out"
    with undrawn():
        assert main([*SMALL, "--out", str(out)]) == 0
    return out


@pytest.fixture(autouse=True)
def _undrawn() -> Iterator[None]:
    """Within a test, the figures of reports are left empty."""
    with undrawn():
        yield


def instead(words: list[str], changed: list[str]) -> list[str]:
    """`words` with the options in `changed` in place of their own."""
    kept, keep = [], True
    for word in words:
        keep = word not in changed if word.startswith("--") else keep
        kept += [word] * keep
    return [*kept, *changed]


def results(out: Path) -> Results:
    return Results.load(out / "results.json")


def comparable(out: Path) -> dict[str, Any]:
    """What two equal runs must agree on."""
    found: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    for name in ("timing", "environment", "command"):
        del found[name]
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of stderr, with which nothing came on stdout."""
    captured = capsys.readouterr()
    (said,) = captured.err.splitlines()
    assert said.startswith("fdgpriv audit: ")
    assert captured.out == ""
    return str(said)


# What a run leaves


def test_every_file_is_whole_and_names_no_place(done: Path) -> None:
    texts = {"config.json", "results.json", "results.csv", "report.html", "report.md"}
    names = {path.name for path in done.iterdir()}
    assert texts | {"transcript"} | {Report.named(name).filename for name in Report.names()} <= names
    assert all(data for data in contents(done).values())
    assert not [name for name in contents(done) if ".part" in name or name.endswith(".tmp")]
    for run in results(done).runs:
        for name in [figure.file for figure in run.figures] + [name for row in run.attacks for name in row.figures]:
            assert (done / name).read_bytes().startswith(b"\x89PNG")
    for name in texts:
        assert str(done.parent) not in (done / name).read_text(encoding="utf-8")
    command = results(done).command or ""
    assert command.startswith("python -m fdgpriv.audit --preset quick")
    assert "--out" not in command


def test_the_results_keep_their_contract(done: Path) -> None:
    schema = json.loads(files("fdgpriv.results").joinpath("schema.json").read_text(encoding="utf-8"))
    written = json.loads((done / "results.json").read_text(encoding="utf-8"))
    jsonschema.validate(written, schema)
    found = results(done)
    asked = json.loads((done / "config.json").read_text(encoding="utf-8"))
    assert asked == {**written["config"], "dataset_sha256": SHA256, "basis": written["environment"]["basis"]}
    assert written["dataset"]["sha256"] == SHA256
    assert not found.interrupted
    assert [(run.method, run.target, run.seed, run.defense) for run in found.runs] == [
        ("stablefdg", TARGET, 0, "none"),
        ("stablefdg", TARGET, 0, "gaussian:epsilon=0.5"),
    ]
    for run in found.runs:
        assert [(row.attack, row.threat.role) for row in run.attacks] == [
            ("class_probe", "server"), ("identification", "server")
        ]  # fmt: skip
        for row in run.attacks:  # six clients are two to a domain, and four are wanted
            assert row.units is not None
            assert (row.units.federated, row.units.shadows) == (6, 6)
        assert run.utility is not None
        assert run.utility.source_accuracy.value is not None
        assert [row.kind for row in run.artifacts].count("style_statistics") == 2  # to the server, and passed on


def test_the_tables_and_reports_tell_of_every_attack(done: Path) -> None:
    rows = list(csv.reader((done / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert len({len(row) for row in rows}) == 1
    told = (done / "report.md").read_text(encoding="utf-8"), (done / "report.html").read_text(encoding="utf-8")
    for word in ("identification", "class_probe", "stablefdg"):
        assert any(word in cell for row in rows for cell in row)
        assert all(word in text for text in told)
    assert not re.search("https?://", told[1].replace("http://www.w3.org/", ""))  # nothing is fetched


def test_the_gaussian_row_is_proved_and_measured(done: Path) -> None:
    plain, defended = (run.privacy for run in results(done).runs)
    assert (plain.epsilon_proved, plain.verdict) == (None, "no_guarantee")
    assert (defended.epsilon_proved, defended.delta, defended.verdict) == (0.5, 1e-5, "consistent")
    assert "over one release" in defended.statement


def test_defended_clients_are_safe_single_images_leak(done: Path) -> None:
    """The positive control is of one image without defense: without it no defense can ever be cleared."""
    plain, defended = (next(row for row in run.attacks if row.attack == "identification") for run in results(done).runs)
    for row in (plain, defended):
        assert row.positive_control is not None
        assert (row.positive_control.value.value or 0) > 0.8
    # one test: corrected for all of the run, twelve targets are on the edge of success
    assert plain.positive_control is not None
    assert plain.positive_control.p is not None
    assert plain.positive_control.p < 0.005
    assert not any(test.marked for test in defended.leakage.values())


# Interrupted, and resumed


def test_ctrl_c_keeps_finished_work_and_resume_goes_on(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    found, step, told = AttackEvaluation._evaluated, ProgressLog.step, threading.Event()
    begun: list[int] = []
    monkeypatch.setattr("fdgpriv.runner.usable_cores", lambda: 1)

    def interrupted(self: AttackEvaluation, *given: Any) -> Any:
        begun.append(1)
        if len(begun) > 1:
            assert told.wait(60)
            raise KeyboardInterrupt
        return found(self, *given)

    def tell(self: ProgressLog, task: Any, text: str = "") -> None:
        step(self, task, text)
        if "class_probe" in text:
            told.set()

    with monkeypatch.context() as patch:
        patch.setattr(AttackEvaluation, "_evaluated", interrupted)
        patch.setattr(ProgressLog, "step", tell)
        assert main([*SMALL, "--out", str(out)]) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert "interrupted" in last
    assert f"--out {out} --resume" in last
    half = results(out)
    assert half.interrupted
    assert [[row.attack for row in run.attacks] for run in half.runs] == [["class_probe"]]
    assert (out / "report.html").is_file()

    (folder,) = (out / "transcript").iterdir()
    before = read_json(folder / "trained.json", TypeAdapter(Trained))
    assert main([*SMALL, "--out", str(out), "--resume"]) == 0
    assert not results(out).interrupted
    assert comparable(out) == comparable(small)
    assert results(out).comparable() == results(small).comparable()
    first, again = contents(small / "transcript"), contents(out / "transcript")
    assert set(first) == set(again)
    assert all(first[name] == again[name] for name in first if not name.endswith("trained.json"))
    after = read_json(folder / "trained.json", TypeAdapter(Trained))
    assert after.train_s == before.train_s  # what was trained was not trained again
    assert {name for name in after.files if after.files[name] != before.files[name]} <= {TENSORS, MANIFEST}  # thinned


def stop(*given: Any, **named: Any) -> None:
    raise KeyboardInterrupt


def test_resuming_what_is_done_changes_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = comparable(small)
    monkeypatch.setattr("fdgpriv.federation.local_engine.LocalEngine.run", stop)
    monkeypatch.setattr(AttackEvaluation, "_evaluated", stop)
    assert main([*SMALL, "--out", str(small), "--resume"]) == 0
    assert comparable(small) == before


def test_ctrl_c_in_training_leaves_nothing_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("fdgpriv.config.AuditConfig.checked", stop)
        assert main([*SMALL, "--out", str(tmp_path / "out")]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("fdgpriv.federation.local_engine.LocalEngine.run", stop)
    assert main([*SMALL, "--out", str(tmp_path / "out")]) == 3
    found = results(tmp_path / "out")
    assert found.interrupted
    assert found.runs == ()
    assert not list((tmp_path / "out").rglob("trained.json"))


def test_other_settings_are_no_resumption(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(small)
    for told, words in {
        "seeds": ["--seed", "1"],
        "clients": ["--clients", "9"],
        "settings": ["--set", "rounds=2", "local_epochs=1"],
        "attacks": ["--attack", "identification"],
        "defenses": ["--defense", "gaussian"],
        "preset": ["--preset", "default"],
        "partition": ["--partition", "heterogeneity:0.1"],
    }.items():
        assert main([*instead(SMALL, words), "--out", str(small), "--resume"]) == 2
        assert told in one_line(capsys)
    assert contents(small) == before


def test_a_taken_out_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("precious")
    full.mkdir()
    (full / "mine").write_text("precious")
    before = contents(tmp_path)
    for taken, out in ((file, file), (full, full), (file, file / "out")):
        assert main([*WHOLE, "--out", str(out)]) == 2
        assert str(taken) in one_line(capsys)
    assert contents(tmp_path) == before


# Other runs


@pytest.mark.slow
def test_a_method_without_styles_has_no_scores(tmp_path: Path) -> None:
    words = [*instead(SHORT, ["--clients", "3"]), "--attack", "identification:simulations=12", "--threat", "server"]
    assert main([*words, "--method", "fedavg", "stablefdg", "--out", str(tmp_path / "out")]) == 0
    run, _ = results(tmp_path / "out").runs
    row = run.attacks[0]
    assert (row.leakage, run.questions) == ({}, ())  # nothing crossed that could be asked about
    assert "fedavg shares no style statistics" in (row.reason or "")


@pytest.mark.slow
def test_without_attacks_it_trains_all_targets_and_seeds(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--method", "fedavg", "stablefdg", "--target", "scan", "blend", "--seed", "0", "1", "--attack", "none"]
    with audits_of(shortened(digits, 32)):
        assert main([*instead(SHORT, ["--clients", "3"]), *words, "--out", str(tmp_path / "out")]) == 0
    found = results(tmp_path / "out")
    assert len(found.runs) == 8
    assert all(run.attacks == () and run.utility for run in found.runs)
    assert all("Nothing was attacked: --attack none was asked for." in run.not_measured for run in found.runs)
    assert not (tmp_path / "out" / "scores").exists()
    said = capsys.readouterr().out.splitlines()
    assert "nothing was attacked" in said
    begin = said.index("accuracy over targets and seeds:") + 1
    fedavg, by_rule, stablefdg, _, lead = said[begin:-1]
    assert all("(2 seeds); scan " in line for line in (fedavg, stablefdg))
    assert (fedavg.partition(",")[0].strip(), stablefdg.partition(",")[0].strip()) == ("fedavg", "stablefdg")
    assert all(rule in by_rule for rule in ("last round", "selected round", "last five"))
    assert "minus fedavg, by pairs over 2 seeds: returned" in lead
    for name in ("report.md", "report.html"):
        assert "Accuracy over targets and seeds" in (tmp_path / "out" / name).read_text(encoding="utf-8")
    assert "over_seeds" in (tmp_path / "out" / "results.csv").read_text(encoding="utf-8")


def test_verdicts_are_printed_and_folders_are_new(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    canned = results(done)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Runner, "run", lambda self, command: canned)
    for folder in ("stablefdg-digits-blend-quick", "stablefdg-digits-blend-quick-2"):
        assert main(WHOLE) == 0
        assert (tmp_path / "runs" / folder).is_dir()
        captured = capsys.readouterr()
        lines = captured.out.splitlines()
        for asked in canned.questions():
            one = asked.question
            wanted = (one.artifact, one.adversary, one.secret, one.scope, one.verdict.replace("_", " "))
            assert any(all(word in line for word in wanted) for line in lines)
        assert lines[-1] == f"report: {Path('runs') / folder / 'report.html'}"
        assert "\x1b" not in captured.err + captured.out  # piped: plain lines


@pytest.mark.slow
def test_a_quick_audit_of_all_digits_by_every_attack(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdgpriv.data.load", lambda name, **given: digits)
    assert main(["--method", "stablefdg", "--preset", "quick", "--out", str(tmp_path / "out")]) == 0
    (run,) = results(tmp_path / "out").runs
    assert {row.attack for row in run.attacks} == set(Attack.names())
    controls = {
        (row.attack, row.threat.role): row.positive_control
        for row in run.attacks
        if row.artifact.startswith("style_statistics") and row.secret != "average_look" and row.positive_control
    }
    for name in ("identification", "domain_inference", "style_membership"):
        assert controls[name, "server"].succeeded, name  # a positive control clears the corrected level
    (labels,) = (
        row for row in run.attacks if row.attack == "label_histogram" and row.artifact.startswith("model_state")
    )
    assert labels.positive_control is not None  # of styles 60 images of the server's own are too few to read a label
    for control in (labels.positive_control, controls["gan", "insider"]):
        assert control.lead > 0.3  # 12 trials of a quick audit do not always clear it
