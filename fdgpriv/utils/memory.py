"""Returns freed memory from the C library's allocator to the operating system."""

import ctypes
import gc
import sys


def release_memory() -> None:
    """Collects garbage, then as `return_freed`."""
    gc.collect()
    return_freed()


def return_freed() -> None:
    """Calls glibc's malloc_trim; without glibc nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
