"""Reads arrays from untrusted files, where numpy allocates what a header promises: no pickle, at most 1 GiB."""

import io
import math
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import deserialize

from fdgpriv.utils.files import read_bytes

AnyArray = NDArray[np.generic]

LARGEST = 2**30  # bytes of a file, and of an array in it
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1"}
_DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "?"}


def read_arrays(file: Path, wanted: Collection[str]) -> Mapping[str, AnyArray]:
    """The `wanted` arrays that this .npz or .safetensors file contains; other arrays are ignored.

    Raises:
        ValueError: The file is damaged, too large, or not a regular file.
    """
    data = read_bytes(file, LARGEST)
    try:
        return _npz(data, wanted) if file.suffix == ".npz" else _safetensors(data, wanted)
    except Exception as error:  # zipfile, zlib, numpy and safetensors raise many types for damaged files
        raise _damaged(file, error) from None


def read_array(file: Path) -> AnyArray:
    """The array in this .npy file; raises ValueError as `read_arrays` does."""
    data = read_bytes(file, LARGEST)
    try:
        return _npy(data)
    except Exception as error:  # as above
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> ValueError:
    reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return ValueError(f"want arrays in {file}, got a file that cannot be read: {reason[:300]}")


def _npz(data: bytes, wanted: Collection[str]) -> dict[str, AnyArray]:
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in wanted:
            members = [member for member in archive.infolist() if member.filename == f"{name}.npy"]
            if len(members) > 1:
                raise ValueError(f"want one member {name}.npy, got {len(members)}")
            for member in members:
                with archive.open(member) as file:  # the archive's own size field may be wrong
                    content = file.read(LARGEST + 1)
                if len(content) > LARGEST:
                    raise ValueError(f"want arrays of at most {LARGEST} bytes, got more in {name}.npy")
                arrays[name] = _npy(content)
    return arrays


def _npy(data: bytes) -> AnyArray:
    file = io.BytesIO(data)
    if not data.startswith(np.lib.format.MAGIC_PREFIX):
        raise ValueError("want an array in numpy's format, got other bytes")
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"want version 1.0, 2.0 or 3.0 of numpy's format, got {'.'.join(map(str, version))}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("want an array of numbers, got one of Python objects, which are not read")
    size, available = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
    if size != available or min(shape, default=0) < 0:
        raise ValueError(f"want the {size} bytes of an array {shape} {dtype}, got {available}")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if by_columns else "C")


def _safetensors(data: bytes, wanted: Collection[str]) -> dict[str, AnyArray]:
    arrays = {}
    for name, tensor in deserialize(data):  # type: ignore[no-untyped-call]
        if name in wanted:
            if tensor["dtype"] not in _DTYPES:
                raise ValueError(f"want {name} of {', '.join(_DTYPES)}; got {tensor['dtype']}: convert it to F32")
            arrays[name] = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    return arrays
