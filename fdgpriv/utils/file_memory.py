"""Keeps large tensors in files that are mapped into memory, so that the system can evict what is not in use."""

import ctypes
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from tempfile import gettempdir, mkstemp
from threading import Lock
from typing import BinaryIO, TypeVar
from weakref import ref

import torch
from torch import Tensor

K = TypeVar("K")

LARGE = 2**21  # bytes from which a tensor is kept in a file
_ALIGNED = 64  # bytes; tensors in one file begin at multiples of it
_BUFFER = 2**18  # bytes that are written at once

_mapped_tensors: "dict[int, ref[Tensor]]" = {}  # by address of a mapped file, one of its tensors
_lock = Lock()


def in_file(tensor: Tensor) -> Tensor:
    """A tensor on the CPU with the same values, in a temporary file if it is large.

    The file has no name any more when this returns, and its space is free when the tensor is.

    Raises:
        OSError: The folder for temporary files (TMPDIR) is full.
    """
    if tensor.nbytes < LARGE or tensor.device.type != "cpu":
        return tensor
    return _mapped([tensor])[0]


def empty_in_file(*shape: int) -> Tensor:
    """A float tensor of zeros on the CPU to be filled, in a temporary file as `in_file`.

    Raises:
        OSError: The folder for temporary files (TMPDIR) is full.
    """
    size = 4 * prod(shape)
    return torch.zeros(shape) if size < LARGE else _registered(_file(size).view(torch.float32).view(shape))


def together_in_file(tensors: Mapping[K, Tensor]) -> dict[K, Tensor]:
    """Tensors on the CPU with the same values, one after the other in one temporary file, as `in_file`."""
    return dict(zip(tensors, _mapped([tensor.cpu() for tensor in tensors.values()]), strict=True))


def unmap_pages() -> None:
    """Takes the pages of all temporary files out of this process's memory; they are mapped again when they are read.

    Their content stays in the files, and in the system's cache of files while there is room. Only on Linux; elsewhere nothing.
    """
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with _lock:
        registered = list(_mapped_tensors.items())
    for address, reference in registered:
        tensor = reference()  # while it is referenced here, its file stays mapped
        if tensor is None:
            with _lock:
                if _mapped_tensors.get(address) is reference:
                    del _mapped_tensors[address]
        elif (memory := tensor.untyped_storage()).data_ptr() == address:
            advise(address, memory.nbytes(), mmap.MADV_DONTNEED)  # of a shared mapping: loses nothing that was written


def _registered(tensor: Tensor) -> Tensor:
    """The tensor, whose memory is a mapped file that `unmap_pages` knows from now on."""
    with _lock:
        _mapped_tensors[tensor.untyped_storage().data_ptr()] = ref(tensor)
    return tensor


def _mapped(tensors: Sequence[Tensor]) -> list[Tensor]:
    ends = list(accumulate(-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in tensors))
    memory = _file(ends[-1], tensors).untyped_storage()
    mapped = [  # slices of one tensor would take three times the memory, for what autograd knows of their origin
        torch.empty(0, dtype=tensor.dtype).set_(memory, start // tensor.element_size(), tensor.shape)  # type: ignore[call-overload]
        for start, tensor in zip([0, *ends[:-1]], tensors, strict=True)
    ]
    _registered(mapped[0])
    return mapped


def _file(size: int, tensors: Sequence[Tensor] = ()) -> Tensor:
    """The bytes (size,) of these tensors, each at a multiple of `_ALIGNED`, or zeros if there are none, in a temporary file."""
    try:
        return _temporary(size, tensors)
    except OSError as error:
        raise OSError(
            error.errno, error.strerror, f"TMPDIR, the folder for temporary files ({gettempdir()})"
        ) from error


def _temporary(size: int, tensors: Sequence[Tensor]) -> Tensor:
    handle, name = mkstemp(prefix="fdgpriv-")
    try:
        with os.fdopen(handle, "wb", buffering=_BUFFER) as file:
            if not tensors:  # a full disk raises here and below, not at a write to the tensor
                _allocate(file, size)
            for tensor in tensors:  # writing is faster than copying into mapped memory, page by page
                file.write(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data)
                file.write(bytes(-tensor.nbytes % _ALIGNED))  # a call of the system for each seek takes longer
        return torch.from_file(name, shared=True, size=size, dtype=torch.uint8)
    finally:
        Path(name).unlink()


def _allocate(file: BinaryIO, size: int) -> None:
    """Gives a new file `size` zeros, for which the disk has space."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.write(bytes(size))
