"""The folder that a run writes to: new or gone on with, and used by one process at a time."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fdgpriv.utils.files import write_text

CONFIG, LOCK = "config.json", ".lock"


def free(name: str) -> Path:
    """A folder in runs/ that does not exist yet: `name`, or `name` with a number."""
    number = 1
    while (path := Path("runs") / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path


def want(out: Path, resume: bool) -> None:
    """Raise ValueError where this folder cannot be begun in, or with `resume` not gone on in."""
    if resume:
        _want_begun(out)
    else:
        _want_empty(out)


@contextmanager
def new(out: Path, config: str | None = None) -> Iterator[None]:
    """Makes the folder, which must not hold anything yet, with this text as its config.json, and holds it.

    Raises:
        ValueError: The folder holds something, or another process is using it.
    """
    _want_empty(out)
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        _want_empty(out)  # another process may have begun and ended in between
        if config is not None:
            write_text(out / CONFIG, config)
        yield


@contextmanager
def resumed(out: Path, config: str) -> Iterator[None]:
    """Holds the folder of an earlier run, whose config.json must be this text.

    Raises:
        ValueError: The folder is of no run or of another one, or another process is using it.
    """
    _want_begun(out)
    was = (out / CONFIG).read_bytes()
    if was != config.encode():
        raise ValueError(f"--resume: want the settings that {out} was begun with; {_difference(was, config)}")
    with _locked(out):
        yield


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Holds the lock of this folder; the system releases it however the process ends."""
    with (out / LOCK).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            raise ValueError(
                f"--out: want a folder that no other run is using, got {out}, held by process {holder}"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _want_begun(out: Path) -> None:
    if not (out / CONFIG).is_file():
        raise ValueError(f"--resume: want a folder of an earlier run, got {out}, which has no {CONFIG}")


def _want_empty(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(path.name != LOCK for path in out.iterdir())):
        raise ValueError(f"--out: want a new or empty folder, got {out}; go on with --resume, or name another")


def _difference(was: bytes, now: str) -> str:
    """Which settings differ between two config.json."""
    try:
        before, after = json.loads(was), json.loads(now)
        names = [name for name in {**after, **before} if before.get(name) != after.get(name)]
    except (ValueError, AttributeError, TypeError, RecursionError):
        names = []
    if not names:
        return f"its {CONFIG} is damaged"
    return "; ".join(f"{name}: was {before.get(name)}, now {after.get(name)}" for name in names)
