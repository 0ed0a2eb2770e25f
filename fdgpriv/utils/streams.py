"""Standard output and standard error that never end a run: closed, without a reader, full, or without some characters."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TextIO


class Lenient(io.TextIOBase):
    """Writes to `stream`; a character that its encoding lacks is written as an escape, and what fails is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._turn = stream, RLock()

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
        with self._turn, self._dropped():
            self._stream.write(shown)
        return len(text)

    def flush(self) -> None:
        with self._turn, self._dropped():
            self._stream.flush()

    @contextmanager
    def _dropped(self) -> Iterator[None]:
        """Within, a stream that cannot be written to is led to nowhere, so that Python's last flush does not fail either."""
        try:
            yield
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)


@contextmanager
def lenient() -> Iterator[None]:
    """Within, both streams are Lenient; a closed one is nowhere, and no file is opened in its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout, sys.stderr = (Lenient(nowhere if stream is None else stream) for stream in before)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = before
