"""Fault-tolerant stdout and stderr: a stream on which `print` raises (closed, broken, full, ASCII) never stops a run."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TextIO


class Lenient(io.TextIOBase):
    """Writes to `stream`; characters that its encoding lacks are escaped, and failed writes are dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock = stream, RLock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        with suppress(OSError, ValueError):
            return self._stream.isatty()
        return False

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        shown = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        with self._lock, self._dropped():
            self._stream.write(shown)
        return len(text)

    def flush(self) -> None:
        with self._lock, self._dropped():
            self._stream.flush()

    @contextmanager
    def _dropped(self) -> Iterator[None]:
        """Within, a stream that cannot be written to is redirected to os.devnull, so later flushes succeed."""
        try:
            yield
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                devnull = os.open(os.devnull, os.O_WRONLY)
                os.dup2(devnull, self._stream.fileno())
                os.close(devnull)


@contextmanager
def lenient() -> Iterator[None]:
    """Within, stdout and stderr are Lenient; closed descriptors 0 to 2 are opened on os.devnull."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    streams = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as devnull:
        sys.stdout, sys.stderr = (Lenient(devnull if stream is None else stream) for stream in streams)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = streams
