"""What surrounds a user's run neither ends nor changes it: home, TMPDIR, locale, matplotlib's configuration, warnings."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fdgpriv.audit import main
from fdgpriv.data.image_cache import cache_folder
from fdgpriv.utils import file_memory, file_names

DRAWING = """
import sys, hashlib, torch
from pathlib import Path
from fdgpriv.results import figures
from fdgpriv.utils.torchvision_import import torchmetrics
import warnings
from fdgpriv.utils.warnings_filter import warnings_in_one_line
with warnings_in_one_line():
    figures.grid([{"truth": torch.full((3, 8, 8), 0.5)}], ["one"], Path(sys.argv[1]))
    assert torchmetrics.functional is not None
    warnings.warn("only told")
"""
RC = "text.usetex: True\nbackend: nonsense\nfigure.dpi: 20\nsavefig.dpi: 10\nfont.size: 40\naxes.facecolor: red\n"


def drawn(folder: Path, **environment: str) -> str:
    """The SHA-256 of a picture that a new process draws in this folder and environment."""
    picture = folder / "picture.png"
    root = str(Path(__file__).parent.parent)
    given = {**os.environ, "PYTHONPATH": root, "MPLCONFIGDIR": str(folder / "config"), **environment}
    done = subprocess.run(
        [sys.executable, "-c", DRAWING, str(picture)],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warning: only told" in done.stderr
    return hashlib.sha256(picture.read_bytes()).hexdigest()


@pytest.mark.slow
def test_matplotlib_s_configuration_changes_no_picture(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = drawn(tmp_path / "plain")
    for name, content in {"settings": RC.encode(), "binary": bytes(range(256))}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "matplotlibrc").write_bytes(content)
        assert drawn(tmp_path / name) == plain
    rc = str(tmp_path / "settings" / "matplotlibrc")
    assert drawn(tmp_path / "plain", MATPLOTLIBRC=rc, MPLBACKEND="nonsense", PYTHONWARNINGS="error") == plain


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FDGPRIV_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where neither HOME nor a passwd entry is
    assert cache_folder() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == (None if sys.platform == "darwin" else Path("/elsewhere/fdgpriv"))


def test_a_full_folder_for_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left on device: 'TMPDIR, the folder for temporary files"):
        file_memory.empty_in_file(file_memory.LARGE)


def test_utf8_names_under_another_locale_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    with pytest.raises(ValueError, match=r"encoding of your locale \(ascii\), got .*PYTHONUTF8=1"):
        file_names.check_name("фото".encode().decode("ascii", "surrogateescape"), "--out")
    with pytest.raises(ValueError, match="bytes that are not UTF-8"):
        file_names.check_name("\udcff", "--out")


def test_a_command_restarts_in_utf8(tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    words = [sys.executable, "-m", "fdgpriv.compare", str(tmp_path / "фото"), "b"]
    root = Path(__file__).parent.parent
    told = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "\\u0444\\u043e\\u0442\\u043e, which does not exist" in told.stderr


def test_a_folder_that_was_removed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def removed() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", removed)
    assert main(["--list"]) == 2
    assert capsys.readouterr().err.startswith("fdgpriv audit: want a current folder that exists")


@pytest.mark.slow
def test_a_training_imports_nothing_that_draws() -> None:
    """Every process of --jobs, Ray and Flower imports what trains: matplotlib and scipy.optimize took a sixth of that time."""
    check = "import sys, fdgpriv.training; print(sorted({'matplotlib', 'scipy.optimize'} & sys.modules.keys()))"
    words = [sys.executable, "-c", check]
    root = Path(__file__).parent.parent
    assert subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout == "[]\n"
