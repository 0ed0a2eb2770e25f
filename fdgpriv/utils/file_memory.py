"""Keeps large tensors in files that are mapped into memory, so that the system can evict what is not in use."""

import os
from pathlib import Path
from tempfile import mkstemp

import torch
from torch import Tensor

LARGE = 2**21  # bytes from which a tensor is kept in a file


def in_file(tensor: Tensor) -> Tensor:
    """A tensor on the CPU with the same values, in a temporary file if it is large.

    The file has no name any more when this returns, and its space is free when the tensor is. Writing to the tensor does not
    change the file.

    Raises:
        OSError: The folder for temporary files (TMPDIR) is full.
    """
    if tensor.nbytes < LARGE or tensor.device.type != "cpu":
        return tensor
    handle, name = mkstemp(prefix="fdgpriv-")
    try:
        with os.fdopen(handle, "wb") as file:
            tensor.contiguous().numpy().tofile(file)
        mapped = torch.from_file(name, shared=False, size=tensor.numel(), dtype=tensor.dtype)
    finally:
        Path(name).unlink()
    return mapped.view(tensor.shape)
