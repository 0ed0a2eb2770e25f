"""The lock of a run's folder where the file system has none, and names that a run's options may have."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from platform import node

import pytest
from factories import refused

from fdgpriv.cli.options import Options
from fdgpriv.registry import plain_number, with_plain_numbers
from fdgpriv.utils import ray_environment, run_folder
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.file_names import expanded

NO_LOCKS = [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP]


@pytest.mark.parametrize("code", NO_LOCKS)
def test_a_file_system_without_locks_is_told(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: object, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.warns(UserWarning, match="has no locks"), run_folder.new(tmp_path / "run", "{}\n"):
        pass
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (tmp_path / "run" / run_folder.LOCK).write_text(f"{other.pid} {node()}\n")
    with refused(f"held by process {other.pid} on {node()}"), run_folder.resumed(tmp_path / "run", "{}\n"):
        pass
    other.communicate(b"\n")
    with pytest.warns(UserWarning, match="has no locks"), run_folder.resumed(tmp_path / "run", "{}\n"):
        pass  # its process has ended


def test_another_error_of_a_lock_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: object, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(OSError, match="Input/output"), run_folder.new(tmp_path / "run"):
        pass


UNCHANGED = ("all", "", "nan", "inf", "1+2", "true", "1_0", "0x4", "1e999", "4.0.0", "v2")
FORMS = {"4": ["4", "4.0", "+4", "4e0", "004", "4."], "0.1": ["0.10", ".1", "1e-1"], "1e-05": ["1e-5", "0.00001"]}


@pytest.mark.parametrize(
    ("given", "plain"),
    [*((text, text) for text in UNCHANGED), *((text, plain) for plain, texts in FORMS.items() for text in texts)],
)
def test_numbers_have_one_form(given: str, plain: str) -> None:
    assert plain_number(given) == plain


def test_specifications_with_equal_numbers_are_one() -> None:
    assert with_plain_numbers("gaussian:epsilon=4.0,on=all+clip:norm=1.50") == "gaussian:epsilon=4,on=all+clip:norm=1.5"
    assert Options(defenses=("gaussian:epsilon=4.0",)).defenses == Options(defenses=("gaussian:epsilon=4",)).defenses
    with refused("--defense: want each value once"):
        Options(defenses=("gaussian:epsilon=4", "gaussian:epsilon=4.0")).check()
    assert Options(settings={"lr": "0.10"}).settings == {"lr": "0.1"}


def test_the_home_of_nobody_is_no_folder() -> None:
    assert expanded("~nosuchuser-here/x") == Path("~nosuchuser-here/x")
    with refused("--data-root: want the folder .* got ~nosuchuser-here/x, which does not exist"):
        Options(dataset="folder", data_root=Path("~nosuchuser-here/x")).check()


def test_a_file_is_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressLog() as log:
        log.done(log.task("train", 1), "trained")
    printed = capsys.readouterr().err
    assert printed.endswith(" s  trained\n")
    assert "\x1b" not in printed


@pytest.mark.parametrize(
    ("folder", "reason"),
    [("/tmp/é", "whose name is ASCII; got /tmp/é"), ("/tmp/" + 90 * "x", "of at most .* characters")],
)
def test_a_folder_that_ray_cannot_use_is_refused(folder: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", folder)
    with refused(f"--engine flower: want a folder for temporary files .TMPDIR. that Ray can use, {reason}"):
        ray_environment.check_temporary_folder("--engine flower")
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    ray_environment.check_temporary_folder("--engine flower")
