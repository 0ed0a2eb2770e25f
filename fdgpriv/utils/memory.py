"""Whether freed memory stays with the process for the next tensor, or goes back to the operating system."""

import ctypes
import gc
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # parameters of glibc's mallopt, in malloc.h
_ALWAYS = 2**30  # bytes


def reuse_freed() -> None:
    """Makes glibc keep freed memory for the next tensor, of any thread, until `return_freed`; without glibc nothing.

    By default it returns large blocks at once, and the system clears the pages of each new one: of photographs of 96 px
    half of the time of a forward pass.
    """
    set_parameter = _of_glibc("mallopt")
    if set_parameter is not None:
        set_parameter(_ARENA_MAX, 1)
        set_parameter(_MMAP_THRESHOLD, _ALWAYS)
        set_parameter(_TRIM_THRESHOLD, _ALWAYS)


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
