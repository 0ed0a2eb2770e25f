"""What is freed goes back to the system."""

import ctypes
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from fdgpriv.utils.file_memory import in_file
from fdgpriv.utils.memory import much_freed_returned, release_memory, return_much_freed

FAULTS = """
import resource, threading, torch
from fdgpriv.utils.memory import reuse_freed
def use():
    for _ in range(5):
        torch.ones(2**23 + 1)
def in_thread():
    thread = threading.Thread(target=use)
    thread.start(), thread.join()
def faults():
    for _ in range(3):
        in_thread()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    in_thread()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
as_it_is = faults()
reuse_freed()
print(as_it_is, faults())
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps it")
PIECE, COUNT = 64 * 1024, 4000  # below the size from which the C library asks the system for each piece by itself


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_much_freed_memory_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("of glibc 2.33 and later")
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    release_memory()
    pieces = [library.malloc(PIECE) for _ in range(COUNT)]
    for piece in pieces:
        ctypes.memset(piece, 1, PIECE)
    last, before = pieces.pop(), resident()
    return_much_freed()
    assert resident() > before - PIECE * COUNT // 2  # blocks in use do not count
    for piece in pieces:
        library.free(piece)
    monkeypatch.setattr("fdgpriv.utils.memory._MUCH", 2**40)  # more than other tests may have freed
    return_much_freed()
    assert before - resident() < PIECE * COUNT // 2
    monkeypatch.setattr("fdgpriv.utils.memory._MUCH", PIECE * COUNT // 2)
    monkeypatch.setattr("fdgpriv.utils.memory._EVERY", 0.01)
    monkeypatch.setattr("fdgpriv.utils.memory._EVERY_IN_FILES", 0.01)
    with much_freed_returned():
        deadline = time.monotonic() + 20
        while before - resident() <= PIECE * COUNT // 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert before - resident() > PIECE * COUNT // 2
    assert "memory" not in [thread.name for thread in threading.enumerate()]
    library.free(last)


def test_much_that_lies_in_files_is_unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of 64 MB in a temporary file leave the process while it runs, and are there when they are read."""
    ones = in_file(torch.ones(2**24))
    assert float(ones.sum()) == 2**24
    before = resident()
    monkeypatch.setattr("fdgpriv.utils.memory._MUCH_IN_FILES", 0)
    monkeypatch.setattr("fdgpriv.utils.memory._EVERY_IN_FILES", 0.01)
    with much_freed_returned():
        deadline = time.monotonic() + 20
        while before - resident() <= 2**25 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert before - resident() > 2**25
    assert float(ones.sum()) == 2**24


@pytest.mark.slow
def test_what_a_thread_frees_is_used_again() -> None:
    """Five tensors of 32 MB, one after the other and after fifteen others, need less than half of the new pages."""
    process = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True)
    as_it_is, reused = map(int, process.stdout.split())
    assert reused < as_it_is / 2
