"""Whether freed memory stays with the process for the next tensor, or goes back to the operating system."""

import ctypes
import gc
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # parameters of glibc's mallopt, in malloc.h
_KEPT = 2**30  # bytes of free memory at the end of the heap
_BLOCK = 2**26  # bytes; larger blocks go back at once: the heap could rarely place another one in their gap


def reuse_freed() -> None:
    """Makes glibc keep freed blocks of up to 64 MB for the next tensor, of any thread, until `return_freed`.

    By default it returns blocks of some 100 KB to 32 MB at once, and the system clears the pages of each new one: half of
    the time of a forward pass of photographs of 96 px. Without glibc nothing.
    """
    set_parameter = _of_glibc("mallopt")
    if set_parameter is not None:
        set_parameter(_ARENA_MAX, 1)
        set_parameter(_TRIM_THRESHOLD, _KEPT)
        set_parameter(_MMAP_THRESHOLD, _BLOCK) or set_parameter(_MMAP_THRESHOLD, _BLOCK // 2)  # most that old ones take


def release_memory() -> None:
    """Collects garbage, then as `return_freed`."""
    gc.collect()
    return_freed()


def return_freed() -> None:
    """Returns freed memory to the operating system (glibc's malloc_trim); without glibc nothing."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_glibc(function: str) -> Any:
    return getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
