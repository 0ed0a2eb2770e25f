"""--jobs: several processes give the results of one; a death, Ctrl-C and wrong numbers are told in one line."""

import os
import signal
import time
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import pytest
from test_bad_populations import folder

import fdgpriv
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.audit import main
from fdgpriv.cli.options import Options
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.results.finding import Results

SIGNAL = "FDGPRIV_TEST_SIGNAL"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The options of a short audit of a folder of noise, which other processes can load."""
    even = {"p": 20, "q": 20}
    root = folder(tmp_path_factory.mktemp("images"), {"a": even, "b": even, "t": {"p": 2, "q": 2}})
    return {
        "dataset": "folder",
        "data_root": root,
        "targets": ("t",),
        "preset": "quick",
        "clients": 2,
        "image_size": 16,
        "settings": {"rounds": "1", "local_epochs": "1"},
    }


@dataclass(frozen=True)
class Fatal(Defense):
    """Changes nothing; where the environment says so, it kills its process or interrupts the parent."""

    def protect(
        self, outgoing: Artifact | StyleDraft, rng: Any, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        which, parent = os.environ.get(SIGNAL), parent_process()
        if parent is not None and which == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if parent is not None and which == "interrupt" and parent.pid is not None:
            os.kill(parent.pid, signal.SIGINT)
            time.sleep(1)
        return outgoing

    def alters(self, kind: str) -> bool:
        return False

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "Proves nothing.")


@pytest.mark.slow
def test_several_processes_give_the_same_results(short: dict[str, Any], tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        found.append(
            fdgpriv.run_audit(
                "stablefdg",
                attacks="domain_inference:simulations=4,expensive_simulations=2",
                defenses=[Fatal(), "gaussian"],
                threats=("server",),
                out=tmp_path / str(jobs),
                jobs=jobs,
                **short,
            )
        )
    assert found[0].comparable() == found[1].comparable()
    assert [run.defense for run in found[1].runs] == ["fatal", "gaussian"]
    assert {path.relative_to(tmp_path / "1") for path in (tmp_path / "1").rglob("*.json")} == {
        path.relative_to(tmp_path / "2") for path in (tmp_path / "2").rglob("*.json")
    }
    assert found[1].environment["workers"] == found[0].environment["workers"]


@pytest.fixture(scope="module")
def whole(short: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What a run of one process that nothing stopped results in."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return fdgpriv.run_audit("fedavg", attacks="none", defenses=[Fatal(), "none"], out=out, **short)


@pytest.mark.slow  # that a process's death costs one item is a quick test of test_processes.py
@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_what_had_finished_is_kept(
    how: str,
    whole: Results,
    short: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    given: dict[str, Any] = {"attacks": "none", "defenses": [Fatal(), "none"], "out": tmp_path / "run", **short}
    monkeypatch.setenv(SIGNAL, how)
    first = fdgpriv.run_audit("fedavg", jobs=2, progress=True, **given)
    told = capfd.readouterr().err
    assert "Traceback" not in told
    if how == "kill":
        assert [(run.defense, run.failed) for run in first.runs] == [
            ("fatal", "its process was ended by SIGKILL"),
            ("none", None),
        ]
        assert told.count("fedavg-t-0-fatal: its process was ended by SIGKILL; the other runs continue") == 1
        assert not first.interrupted
        assert first.runs[1] == whole.runs[1]  # another process gives the same
    else:
        assert first.interrupted
        assert "fatal" not in [run.defense for run in first.runs]
        assert "interrupted: keeping finished work" in told
    monkeypatch.delenv(SIGNAL)
    assert fdgpriv.run_audit("fedavg", resume=True, **given).comparable() == whole.comparable()


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_is_one_line(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--method", "fedavg", "--jobs", value]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "--jobs" in told
    assert value in told


def test_the_number_of_processes_is_no_setting() -> None:
    assert Options().jobs == 1
    assert main(["--list", "--jobs", "2"]) == 2
    with pytest.raises(ValueError, match="--jobs: want a number of at least 1, got 0"):
        Options(jobs=0).check()
