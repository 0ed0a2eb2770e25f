"""Keeps large tensors in files that are mapped into memory, so that the system can evict what is not in use."""

import os
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from tempfile import mkstemp

import torch
from torch import Tensor

LARGE = 2**21  # bytes from which a tensor is kept in a file
_ALIGNED = 64  # bytes; tensors in one file begin at multiples of it


def in_file(tensor: Tensor) -> Tensor:
    """A tensor on the CPU with the same values, in a temporary file if it is large.

    The file has no name any more when this returns, and its space is free when the tensor is. Writing to the tensor does not
    change the file.

    Raises:
        OSError: The folder for temporary files (TMPDIR) is full.
    """
    if tensor.nbytes < LARGE or tensor.device.type != "cpu":
        return tensor
    return _mapped([tensor])[0]


def empty_in_file(*shape: int) -> Tensor:
    """A float tensor of zeros on the CPU in a temporary file, as `in_file`; writing to it writes to the file.

    Raises:
        OSError: The folder for temporary files (TMPDIR) is full.
    """
    size = 4 * prod(shape)
    if size < LARGE:
        return torch.zeros(shape)
    handle, name = mkstemp(prefix="fdgpriv-")
    try:
        if hasattr(os, "posix_fallocate"):  # then a full disk raises here, not at a write
            os.posix_fallocate(handle, 0, size)
        return torch.from_file(name, shared=True, size=prod(shape), dtype=torch.float32).view(shape)
    finally:
        os.close(handle)
        Path(name).unlink()


def together_in_file(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors on the CPU with the same values, one after the other in one temporary file, as `in_file`."""
    return dict(zip(tensors, _mapped([tensor.cpu() for tensor in tensors.values()]), strict=True))


def _mapped(tensors: Iterable[Tensor]) -> list[Tensor]:
    handle, name = mkstemp(prefix="fdgpriv-")
    places = []
    try:
        with os.fdopen(handle, "wb") as file:
            for tensor in tensors:
                places.append((file.tell(), tensor.nbytes, tensor.dtype, tensor.shape))
                tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tofile(file)
                file.write(bytes(-file.tell() % _ALIGNED))
            size = file.tell()
        whole = torch.from_file(name, shared=False, size=size, dtype=torch.uint8)
    finally:
        Path(name).unlink()
    return [whole[at : at + nbytes].view(dtype).view(shape) for at, nbytes, dtype, shape in places]
