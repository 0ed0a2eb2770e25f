"""What lies on disk: damage is told, a full disk leaves a state to go on from, one run per folder, names that fit."""

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from conftest import audits_of, mostly_slow, shortened
from PIL import Image
from safetensors.torch import load_file, save_file

from fdgpriv import api
from fdgpriv.audit import main
from fdgpriv.data.dataset import Dataset
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.results import figures
from fdgpriv.results.score_rows import ROWS, read_rows
from fdgpriv.results.score_tables import SCHEMAS, ScoreTables
from fdgpriv.utils import run_folder
from fdgpriv.utils.checksum import write_json, write_tensors
from fdgpriv.utils.files import write_text

ROOT = Path(__file__).parent.parent
CELL = "fedavg-blend-0-none"
SHORT = ["--method", "fedavg", "--preset", "quick", "--clients", "6", "--set", "rounds=1", "local_epochs=1"]
WORDS = [*SHORT, "--attack", "label_histogram:simulations=12", "--threat", "server"]


@pytest.fixture(scope="module", autouse=True)
def _few_digits(digits: Dataset) -> Iterator[None]:
    """Audits of `digits` here are of 64 images a domain."""
    with audits_of(shortened(digits, 64), drawn=False):
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, _few_digits: None) -> Path:
    """The folder of an audit that ran through."""
    out = tmp_path_factory.mktemp("disk") / "out"
    assert main([*WORDS, "--out", str(out)]) == 0
    return out


def results(out: Path) -> dict[str, Any]:
    """What two equal runs must agree on."""
    found: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if name not in ("timing", "environment", "command")}


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != run_folder.LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.splitlines()[-1]


# Damage

TRAINED = f"transcript/{CELL}/trained.json"
Change = Callable[[Path], None]
Rows = list[dict[str, Any]]


def tensor_plus_5(path: Path) -> None:
    tensors = load_file(path)
    name = max(tensors, key=lambda name: tensors[name].numel())
    tensors[name].view(-1)[0] += 5
    save_file(tensors, path)


def bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def bytes_changed(change: Callable[[bytes], bytes]) -> Change:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None


def json_changed(change: Callable[[Any], Any]) -> Change:
    return lambda path: path.write_text(json.dumps(change(json.loads(path.read_text())))) and None


def forged(*where: Any, to: Any) -> Change:
    """With a digest that fits, so that only the types and ranges of the record are left to tell."""

    def change(path: Path) -> None:
        content = at = json.loads(path.read_text())["content"]
        for step in where[:-1]:
            at = at[step]
        at[where[-1]] = to
        write_json(path, json.dumps(content).encode())

    return change


def rows_changed(table: str, change: Callable[[Rows], Rows]) -> Change:
    """Other rows of one table in an archive of score tables."""

    def changed(path: Path) -> None:
        tables = ScoreTables.load_archive(path)
        rows = pa.Table.from_pylist(change(getattr(tables, table).to_pylist()), SCHEMAS[table])
        replace(tables, **{table: rows}).save_archive(path)

    return changed


def every(column: str, to: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [{**row, column: to} for row in rows]


DAMAGE: dict[str, tuple[tuple[Change, str], ...]] = {
    f"transcript/{CELL}/tensors.safetensors": ((tensor_plus_5, "another SHA-256"), (Path.unlink, "No such file")),
    f"transcript/{CELL}/model.safetensors": ((tensor_plus_5, "another SHA-256"),),
    f"transcript/{CELL}/manifest.jsonl": ((bit, "another SHA-256"),),
    TRAINED: (
        (bit, "another SHA-256"),
        (json_changed(lambda entry: entry["content"]), "another file"),
        (forged("utility", "target_accuracy", "value", to=5.0), "target_accuracy: want a share in [0, 1]"),
        (forged("utility", "rounds", 0, "source_accuracy", to=-0.1), "rounds[0].source_accuracy"),
        (forged("utility", "source_accuracy", "n", to=-1), "source_accuracy.n"),
        (forged("train_s", to="1"), "train_s"),
        (forged("wire_s", to=float("nan")), "wire_s"),
        (forged("colour", to="red"), "colour"),
        (forged("utility", to={}), "utility"),
    ),
    "scores": (
        (bit, "another file"),
        (rows_changed("scores", lambda rows: rows[1:]), "want each trial once among the scores of "),
        (rows_changed("scores", lambda rows: [rows[0], *rows]), "want each trial once among the scores of "),
        (rows_changed("scores", every("value", 2.5)), ": want l1 in [0.0, 2.0], got 2.5"),
        (rows_changed("scores", lambda rows: []), "want scores, or not_applicable"),
        (rows_changed("evaluations", every("attack_s", -1.0)), "attack_s"),
        (rows_changed("evaluations", every("figures", ["../../x.png"])), "figures"),
        (rows_changed("evaluations", lambda rows: []), "want the evaluations"),
    ),
    f"scores/{CELL}/facts.json": ((forged("a", to=float("nan")), "a: "), (bit, "another")),
    "config.json": (
        (bytes_changed(lambda data: data + b" "), "config.json is damaged"),
        (bytes_changed(lambda data: b"[]"), "config.json is damaged"),
        (json_changed(lambda entry: {**entry, "colour": "red"}), "colour: was red, now absent"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_one_line_that_names_the_file(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is changed."""
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    path = next((out / "scores" / CELL).glob("label_histogram*")) if name == "scores" else out / name
    whole = path.read_bytes()
    monkeypatch.setattr(api, "dry_run", lambda *given: ())  # takes longer than the rest
    for change, reason in DAMAGE[name]:
        path.write_bytes(whole)
        change(path)
        before = contents(out)
        assert main([*WORDS, "--out", str(out), "--resume"]) == 2
        printed = last_line(capsys)
        assert reason in printed
        assert (path.name if path.name != "config.json" else str(out)) in printed
        assert contents(out) == before


def test_a_run_resumes_on_the_same_images_only(
    finished: Path, digits: Dataset, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    monkeypatch.setattr(api, "dry_run", lambda *given: ())
    with audits_of(replace(shortened(digits, 64), sha256="0" * 64)):
        assert main([*WORDS, "--out", str(out), "--resume"]) == 2
    assert (
        f"--resume: want the images and labels that {out} was started with, SHA-256 {digits.sha256}; "
        f"got others, SHA-256 {'0' * 64}"
    ) in last_line(capsys)
    assert contents(out) == contents(finished)


def test_what_is_removed_is_made_again(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    shutil.rmtree(out / "transcript" / CELL)
    next((out / "scores" / CELL).glob("label_histogram*")).unlink()
    assert main([*WORDS, "--out", str(out), "--resume"]) == 0
    assert results(out) == results(finished)


# A full disk


@pytest.mark.parametrize("writes", mostly_slow([0, 2, 4, 7], [4]))
def test_a_full_disk_is_one_line_and_resume_goes_on(
    writes: int, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After so many files there is room for a part of one more."""
    monkeypatch.setattr(api, "dry_run", lambda *given: ())  # writes nothing
    out, room, fsync = tmp_path / "out", [writes], os.fsync

    def full(number: int) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main([*WORDS, "--out", str(out)]) == 1
    assert "No space left on device: " in last_line(capsys)
    kept = contents(out)
    assert len(kept) == writes
    assert not [name for name in kept if name.endswith(".part")]
    train, found = LocalEngine.run, []

    def watched(*given: Any) -> Any:
        found.append(sorted(contents(out)))
        return train(*given)

    monkeypatch.setattr(LocalEngine, "run", watched)
    assert main([*WORDS, "--out", str(out), *(["--resume"] if writes else [])]) == 0
    assert results(out) == results(finished)
    # what was trained is not trained again, and what was saved in part takes no room twice
    assert found == ([] if TRAINED in kept else [["config.json"]])


def test_scores_of_a_table_that_cannot_be_written_are_kept(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON lines; the rest of the run is written, and --resume computes the evaluation again."""
    monkeypatch.setattr(api, "dry_run", lambda *given: ())  # writes nothing
    out = tmp_path / "out"

    def broken(*given: Any) -> None:
        raise TypeError("this version lacks an argument")

    with monkeypatch.context() as patch:
        patch.setattr(ScoreTables, "save_archive", broken)
        assert main([*WORDS, "--out", str(out)]) == 1
    (rows,) = out.rglob(f"*{ROWS}")
    assert str(rows) in last_line(capsys)
    (stored,) = finished.rglob("scores/*/*.zip")
    kept, tables = ScoreTables.of_rows(read_rows(rows)), ScoreTables.load_archive(stored)
    assert kept.scores.equals(tables.scores)
    assert kept.evaluations.drop_columns("attack_s").equals(tables.evaluations.drop_columns("attack_s"))
    assert main([*WORDS, "--out", str(out), "--resume"]) == 0
    assert results(out) == results(finished)
    assert not list(out.rglob(f"*{ROWS}"))


def test_tables_that_cannot_be_written_are_told_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def old(table: Any, where: Any, *, compression: str) -> None:
        raise AssertionError

    monkeypatch.setattr("pyarrow.parquet.write_table", old)
    assert main([*WORDS, "--out", str(tmp_path / "out")]) == 2
    assert "want runs that can be written as score tables with pyarrow" in last_line(capsys)
    assert not (tmp_path / "out").exists()


def test_tensors_that_do_not_fit_leave_nothing(tmp_path: Path) -> None:
    """A real limit on the size of a file, which a library that is not Python runs into."""
    path, before = tmp_path / "x.safetensors", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError) as error:
            write_tensors(path, {"a": torch.zeros(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(path))
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_text(path, "old")
    code = (
        "import os, sys; from pathlib import Path; from fdgpriv.utils.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as part: part.write_text('ne'); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    write_text(path, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]
    assert path.read_text() == "new"


# One run per folder

HOLD = (
    "import sys; from pathlib import Path; from fdgpriv.utils import run_folder\n"
    "with run_folder.new(Path(sys.argv[1]), ''): print('held', flush=True); sys.stdin.read()"
)


def test_a_second_process_is_told_who_holds_the_folder(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", HOLD, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        shutil.copy(finished / "config.json", out)
        assert main([*WORDS, "--out", str(out), "--resume"]) == 2
        assert f"held by process {holder.pid}" in last_line(capsys)
        (out / "config.json").unlink()
        assert main([*WORDS, "--out", str(out)]) == 2
        assert f"held by process {holder.pid}" in last_line(capsys)
        assert contents(out) == {}
        holder.send_signal(signal.SIGKILL)
    with run_folder.new(out):
        pass


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_a_folder_that_cannot_be_made_is_refused_first(
    dry_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a folder below a file, and a folder below one that is read-only."""
    (tmp_path / "file").touch()
    words = ["--method", "fedavg", *dry_run]
    for out, named in (("file", "file is a file"), ("file/a/b", "file is a file")):
        assert main([*words, "--out", str(tmp_path / out)]) == 2
        assert re.fullmatch(f"fdgpriv audit: --out: want a new or empty folder, got .*{named}", last_line(capsys))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)  # root may write anywhere
    assert main([*words, "--out", str(tmp_path / "new" / "folder")]) == 2
    assert f"{tmp_path} is read-only for this user" in last_line(capsys)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


# Names


def pictures(root: Path, domain: str, klass: str = "") -> None:
    """Ten images of this class, or of each of two."""
    for name in (klass,) if klass else ("x", "y"):
        (root / domain / name).mkdir(parents=True, exist_ok=True)
        for i in range(10):
            Image.new("RGB", (8, 8), (6 * i, 0, 0)).save(root / domain / name / f"{i}.png")


UNWRITABLE = (
    (["a\udcff", "b"], "out", r"'\udcff'"),
    (["a\nb", "b"], "out", r"'\n'"),
    (["a/\u202ex", "b/\u202ex"], "out", r"'\u202e'"),
    (["a", "愛" * 81], "out", "of at most 255 bytes, got 257"),
    (["a b", "a_b"], "out", "a separate file"),
    (["a", "b"], "o\udcff", "--out: want a name"),
    (["a", "b"], "/".join(["o" * 200] * 20), "paths of at most 4095 bytes"),
    (["a", "b"], "o" * 256, "File name too long"),
)


def test_a_name_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any training."""
    for number, (domains, out, reason) in enumerate(UNWRITABLE):
        root, place = tmp_path / f"images{number}", tmp_path / "runs"
        for name in domains:
            pictures(root, *name.split("/"))
        place.mkdir(exist_ok=True)
        short = ["1" if word == "6" else word for word in SHORT]  # one client
        words = [*short, "--attack", "none", "--dataset", "folder", "--data-root", str(root), "--target", "all"]
        assert main([*words, "--image-size", "8", "--out", str(place / out)]) == 2
        printed = last_line(capsys)
        assert reason in printed
        assert printed.isprintable()
        assert list(place.iterdir()) == []


def test_a_picture_is_drawn_whatever_its_names(tmp_path: Path) -> None:
    for name in ("a$x^$b", "$", r"a\$", "x" * 100, "愛", "<b>|"):
        figures.grid([{"truth": torch.zeros(3, 8, 8)}], [name], tmp_path / "x.png")
        with Image.open(tmp_path / "x.png") as picture:
            assert picture.format == "PNG"
