"""Files read within limits and written whole or not at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PART = ".part"  # ends the name of a file while it is written


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; a one-line ValueError otherwise."""
    try:
        mode = path.stat().st_mode if path.exists() else 0
        if not stat.S_ISREG(mode):  # reading a pipe or a device might never end
            came = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device" if mode else "nothing there"
            raise ValueError(f"want a file {path}, got {came}")
        size = path.stat().st_size
        if size > limit:
            raise ValueError(f"want {path} of at most {limit} bytes, got {size}")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"want a readable file {path}, got: {error.strerror}") from error


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A neighbour of `path` to write to, renamed over `path` at the end, or removed where writing failed.

    Raises:
        OSError: Writing failed; its `filename` is set.
    """
    neighbour = path.with_name(f".{path.name}{PART}")
    try:
        yield neighbour
        with neighbour.open("rb") as file:
            os.fsync(file.fileno())
        neighbour.replace(path)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)
        raise
    finally:
        neighbour.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `data` whole or not at all."""
    with whole(path) as neighbour:
        neighbour.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Writes `text` in UTF-8, whole or not at all."""
    write_bytes(path, text.encode())
