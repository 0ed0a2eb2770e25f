"""Standard streams that are closed, have no reader, are full or lack characters: nothing is raised, and the run goes on."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fdgpriv.utils.streams import Lenient, lenient

ROOT = Path(__file__).parent.parent


def without_reader() -> io.TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return io.TextIOWrapper(os.fdopen(writer, "wb"), encoding="utf-8")


def full() -> io.TextIOWrapper:
    return open("/dev/full", "w", encoding="utf-8")


def closed() -> io.TextIOWrapper:
    stream = full()
    stream.close()
    return stream


@pytest.mark.parametrize("make", [without_reader, full, closed])
def test_what_cannot_be_written_is_dropped(make: "type[io.TextIOWrapper]") -> None:
    stream = make()
    lenient_stream = Lenient(stream)
    for _ in range(2):
        assert lenient_stream.write("x" * 10_000) == 10_000
        lenient_stream.flush()
    stream.close()  # as Python does at its end: nothing is left that could fail
    assert not lenient_stream.isatty()


@pytest.mark.parametrize(
    ("encoding", "written"), [("ascii", rb"\xe9 \u611b \udcff"), ("latin-1", b"\xe9 \\u611b \\udcff")]
)
def test_what_an_encoding_lacks_is_escaped(encoding: str, written: bytes) -> None:
    raw = io.BytesIO()
    stream = Lenient(io.TextIOWrapper(raw, encoding=encoding))
    stream.write("é 愛 \udcff")
    stream.flush()
    assert raw.getvalue() == written


def test_closed_streams_come_back_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with lenient():
        sys.stdout.write("x")
        sys.stderr.write("x")
    assert sys.stdout is None
    assert sys.stderr is None


AUDIT = f"{sys.executable} -m fdgpriv.audit"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"PYTHONIOENCODING=ascii LC_ALL=C {AUDIT} --method é 2>&1 | tail -c 8", r" '\xe9'" + "\n"),
        (f"{AUDIT} --method nobody 2>&-; test $? = 2", ""),
    ],
)
def test_the_command_line_ends_without_a_traceback(command: str, said: str) -> None:
    script = f"set -o pipefail; {command}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.stderr) == (said, "")
    assert done.returncode == (2 if "tail" in command else 0)


@pytest.mark.slow
def test_an_audit_outlives_its_reader(tmp_path: Path) -> None:
    words = "--method fedavg --preset quick --set rounds=1 local_epochs=1 --attack none"
    script = f"set -o pipefail; {AUDIT} {words} --out out 2>&1 | head -c 9"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1"}  # a live line, though nobody watches it
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "out" / "report.md").is_file()
