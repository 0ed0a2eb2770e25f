"""Size-limited file reads and atomic file writes."""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PART = ".part"  # suffix of the temporary file during a write
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # the disk is full or fails


class DamagedFile(ValueError):
    """A file in a run's folder differs from what the run wrote."""


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; ValueError otherwise."""
    try:
        mode = path.stat().st_mode if path.exists() else 0
        if not stat.S_ISREG(mode):  # reading a pipe or a device might never end
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device" if mode else "no file"
            raise ValueError(f"want a file {path}, got {kind}")
        size = path.stat().st_size
        if size > limit:
            raise ValueError(f"want {path} of at most {limit} bytes, got {size}")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"want a readable file {path}, got: {error.strerror}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, renamed to `path` at the end, or removed if writing failed.

    Raises:
        OSError: Writing failed; its `filename` is set.
    """
    temporary = path.with_name(f".{path.name}{PART}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `data` atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Writes `text` in UTF-8 atomically."""
    write_bytes(path, text.encode())


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes texts by file name into a folder, which is created where there is none; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]
