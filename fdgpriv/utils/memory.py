"""Returns freed memory from the C library's allocator to the operating system."""

import ctypes
import gc
import sys


def release_memory() -> None:
    """Collects garbage and calls glibc's malloc_trim; without glibc only the former."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
