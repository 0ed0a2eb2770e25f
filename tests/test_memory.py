"""What is freed goes back to the system."""

import ctypes
import platform
from pathlib import Path

import pytest

from fdgpriv.utils.memory import release_memory

PIECE, COUNT = 64 * 1024, 4000  # below the size from which the C library asks the system for each piece by itself


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps it")
def test_freed_memory_goes_back_to_the_system() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    pieces = [library.malloc(PIECE) for _ in range(COUNT)]
    for piece in pieces:
        ctypes.memset(piece, 1, PIECE)
    last = pieces.pop()  # keeps the end of the heap, so that nothing goes back by itself
    for piece in pieces:
        library.free(piece)
    before = resident()
    release_memory()
    assert before - resident() > PIECE * COUNT // 2
    library.free(last)
    release_memory()  # twice is harmless
