"""Confines an exception to the part of a run that raised it: the part gets one line, the rest of the run goes on."""

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from fdgpriv.utils import records
from fdgpriv.utils.files import DISK_FULL, DamagedFile

T = TypeVar("T")

_SHOWN = 300  # maximum characters of an error's text
_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class Failed:
    """In place of a result whose computation raised an exception; `line` names the exception and where it was raised."""

    line: str


def ends_the_run(error: BaseException) -> bool:
    """Whether no part of the run can go on: the disk is full, a stored file is damaged, or the user interrupts."""
    if isinstance(error, OSError):
        return error.errno in DISK_FULL
    return isinstance(error, DamagedFile) or not isinstance(error, Exception)


def attempt(compute: Callable[[], T]) -> T | Failed:
    """The result of `compute`, or the line of the exception that it raised; one that ends the run is raised again."""
    try:
        return compute()
    except Exception as error:
        if ends_the_run(error):
            raise
        return Failed(one_line(error))


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Within, an exception that is neither ValueError nor OSError becomes a ValueError of one line that begins with `what`."""
    try:
        yield
    except (ValueError, OSError):
        raise
    except Exception as error:
        raise ValueError(f"{what}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The exception in one line: its kind, its text, and the innermost file and line that is no library's."""
    text = records.one_line(error) if isinstance(error, ValidationError) else str(error)
    text = " ".join(text.split())[:_SHOWN]
    shown = "".join(c if c.isprintable() else "?" for c in text)
    trace = [step for step in traceback.extract_tb(error.__traceback__) if not _of_library(step.filename)]
    is_located = not trace or isinstance(error, SyntaxError)  # a SyntaxError's text names file and line
    where = "" if is_located else f" ({Path(trace[-1].filename).name}, line {trace[-1].lineno})"
    return f"{type(error).__name__}: {shown}{where}" if shown else f"{type(error).__name__}{where}"


def _of_library(filename: str) -> bool:
    return filename.startswith((*_LIBRARIES, "<")) and not filename.startswith(_PACKAGE)
