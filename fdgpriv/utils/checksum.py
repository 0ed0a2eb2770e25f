"""Writes and reads a run's files with SHA-256 checksums.

A JSON file contains the digest of its own content, ``{"sha256": "...", "content": ...}``. The digest of a tensor file is
in the JSON file written after it. This detects damage, not deliberate forgery.
"""

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from fdgpriv.utils.files import PART, read_bytes, replacing, write_bytes
from fdgpriv.utils.files import DamagedFile as DamagedFile
from fdgpriv.utils.records import one_line

T = TypeVar("T")

LARGEST_JSON = 2**30  # bytes
SUMS = "SHA256SUMS"  # the digests of a run's files, in the form of `sha256sum`
_JSON = re.compile(rb'\{"sha256": "([0-9a-f]{64})", "content": (.*)\}\n', re.DOTALL)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors by name, in hexadecimal: of each, by order of name, its name, type, shape (as JSON) and bytes."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Writes `SUMS` into `folder`: the SHA-256 of these files in it, and of all files in these folders in it."""
    paths = [
        path
        for name in names
        for path in ([folder / name] if (folder / name).is_file() else (folder / name).rglob("*"))
    ]
    listed = sorted(path for path in paths if path.is_file() and path.suffix != PART)
    lines = [f"{digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in listed]
    write_bytes(folder / SUMS, "".join(lines).encode())


def read_sums(folder: Path) -> dict[str, str]:
    """By name of a file, the SHA-256 that `write_sums` wrote; a DamagedFile if there are none, or another file."""
    try:
        lines = read_bytes(folder / SUMS, LARGEST_JSON).decode().splitlines()
    except ValueError as error:
        raise DamagedFile(str(error)) from None
    matches = [re.fullmatch("([0-9a-f]{64})  (.+)", line) for line in lines]
    if not all(matches):
        raise DamagedFile(f"want lines of a SHA-256, two blanks and a name in {folder / SUMS}, got others")
    return {match[2]: match[1] for match in matches if match}


def write_json(path: Path, content: bytes) -> None:
    """Writes this JSON text with its digest atomically; creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.sha256(content).hexdigest().encode()
    write_bytes(path, b'{"sha256": "%s", "content": %s}\n' % (sha256, content))


def read_json(path: Path, form: TypeAdapter[T]) -> T:
    """The content of a file written by `write_json`, validated as `form`.

    Raises:
        DamagedFile: The file is missing, altered or of another form.
    """
    try:
        data = read_bytes(path, LARGEST_JSON)
    except ValueError as error:
        raise DamagedFile(str(error)) from None
    match = _JSON.fullmatch(data)
    if match is None:
        raise DamagedFile(f"want JSON with its SHA-256 in {path}, got another file; {_remedy(path)}")
    if hashlib.sha256(match[2]).hexdigest().encode() != match[1]:
        raise DamagedFile(f"want {path} as it was written, got another SHA-256; {_remedy(path)}")
    try:
        return form.validate_json(match[2], strict=True)
    except ValidationError as error:
        raise DamagedFile(f"{path}: {one_line(error)}; {_remedy(path)}") from None


def check_files(folder: Path, digests: Mapping[str, str], remove: Path | None = None) -> None:
    """Raises DamagedFile if a file in `folder` is missing or its SHA-256 differs from `digests`, by file name.

    Its text says to remove the folder, or `remove`, for the files to be computed again.
    """
    remedy = _remedy(folder if remove is None else remove)
    for name, sha256 in digests.items():
        try:
            actual = digest(folder / name)
        except OSError as error:
            raise DamagedFile(f"want {folder / name}, got: {error.strerror}; {remedy}") from None
        if actual != sha256:
            raise DamagedFile(f"want {folder / name} as it was written, got another SHA-256; {remedy}")


def _remedy(path: Path) -> str:
    return f"remove {path}, and --resume computes it again"


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a .safetensors file atomically; raises OSError, not SafetensorError, if it cannot be written."""
    with replacing(path) as temporary:
        save_tensors(temporary, tensors, path)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], shown: Path | None = None) -> None:
    """Writes a .safetensors file; raises OSError about it, or about the path that is `shown`, if it cannot be written."""
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code), str(shown or path)) from None
