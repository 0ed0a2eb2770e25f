"""Gives back to the system what the C library keeps of memory that was freed."""

import ctypes
import gc
import sys


def give_back() -> None:
    """Of no effect where the C library has no such call; only glibc has."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
