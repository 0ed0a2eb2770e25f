"""Keeps freed memory for the next tensors, whose pages the system would clear again, and returns it where it is much.

glibc by default returns each freed tensor at once, and keeps what it has of smaller blocks; torch has no setting for it.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import PAGESIZE
from pathlib import Path
from threading import Event, Thread
from typing import Any

from fdgpriv.utils.file_memory import unmap_pages

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # parameters of glibc's mallopt, in malloc.h
_KEPT = 2**30  # bytes of free memory at the end of the heap
_MUCH = 2**28  # bytes
_MUCH_IN_FILES = 2**29  # bytes
_EVERY_IN_FILES = 1.0  # seconds; files of a gigabyte can be read in a few
_EVERY = 5.0  # seconds; the pages of what goes back are cleared when they are used again
_BLOCK = 2**26  # bytes; larger blocks go back at once: the heap could rarely place another one in their gap


def reuse_freed() -> None:
    """Makes glibc keep freed blocks of up to 64 MB for the next tensor, of any thread, until `return_freed`.

    By default it returns large blocks at once, and the system clears the pages of each new one. Without glibc nothing.
    """
    set_parameter = _of_glibc("mallopt")
    if set_parameter is not None:
        set_parameter(_ARENA_MAX, 1)
        set_parameter(_TRIM_THRESHOLD, _KEPT)
        if not set_parameter(_MMAP_THRESHOLD, _BLOCK):
            set_parameter(_MMAP_THRESHOLD, _BLOCK // 2)  # the most that old versions take


def release_memory() -> None:
    """Collects garbage, then as `return_freed`."""
    gc.collect()
    return_freed()


def return_freed() -> None:
    """Returns freed memory to the operating system (glibc's malloc_trim); without glibc nothing."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


@contextmanager
def much_freed_returned() -> Iterator[None]:
    """Meanwhile a thread does as `return_much_freed` every few seconds, and unmaps pages of temporary files where they are
    many (see `fdgpriv.utils.file_memory`).
    """
    over = Event()

    def watch() -> None:
        since = 0.0
        while not over.wait(_EVERY_IN_FILES):
            if _in_files() > _MUCH_IN_FILES:
                unmap_pages()
            if (since := since + _EVERY_IN_FILES) >= _EVERY:
                return_much_freed()
                since = 0.0

    watching = Thread(target=watch, name="memory", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def return_much_freed() -> None:
    """As `return_freed`, where much memory that is freed is still held (`_MUCH`), or where it is not known how much."""
    freed = _held_freed()
    if freed is None or freed > _MUCH:
        return_freed()


def _in_files() -> int:
    """Bytes of this process's memory that lie in files, programs included; 0 where it is not known."""
    usage = Path("/proc/self/statm")
    return int(usage.read_text().split()[2]) * PAGESIZE if usage.exists() else 0


def _held_freed() -> int | None:
    """Bytes of memory that belong to this process alone and hold no block; None before glibc 2.33."""
    usage = _of_glibc("mallinfo2")
    if usage is None:
        return None
    usage.restype = _Usage
    allocated: Any = usage()
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * PAGESIZE - int(allocated.in_heap) - int(allocated.in_maps)


class _Usage(ctypes.Structure):
    """glibc's struct mallinfo2, in bytes."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "chunks", "fast_chunks", "maps", "in_maps", "peak", "fast")),
        *((name, ctypes.c_size_t) for name in ("in_heap", "free", "at_end")),
    )


def _of_glibc(function: str) -> Any:
    return getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
