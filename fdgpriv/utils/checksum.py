"""SHA-256 of what a run leaves on disk, recorded when it is written and compared when it is read back.

A JSON file carries the digest of its own content, ``{"sha256": "...", "content": ...}``; a file of tensors has its digest
in the JSON file that is written after it. This shows damage. It does not stop somebody who computes the digest again.
"""

import errno
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from fdgpriv.utils.files import read_bytes, whole, write_bytes
from fdgpriv.utils.records import one_line

T = TypeVar("T")

LARGEST_JSON = 2**30  # bytes
_JSON = re.compile(rb'\{"sha256": "([0-9a-f]{64})", "content": (.*)\}\n', re.DOTALL)


class DamagedFile(ValueError):
    """A file in the folder of a run is not what the run wrote."""


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, content: bytes) -> None:
    """Writes this JSON text with its digest, whole or not at all; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.sha256(content).hexdigest().encode()
    write_bytes(path, b'{"sha256": "%s", "content": %s}\n' % (sha256, content))


def read_json(path: Path, form: TypeAdapter[T]) -> T:
    """What `write_json` wrote, as `form` has it; a DamagedFile of one line where it is anything else."""
    try:
        data = read_bytes(path, LARGEST_JSON)
    except ValueError as error:
        raise DamagedFile(str(error)) from None
    found = _JSON.fullmatch(data)
    if found is None:
        raise DamagedFile(f"want JSON with its SHA-256 in {path}, got another file; {_again(path)}")
    if hashlib.sha256(found[2]).hexdigest().encode() != found[1]:
        raise DamagedFile(f"want {path} as it was written, got another SHA-256; {_again(path)}")
    try:
        return form.validate_json(found[2], strict=True)
    except ValidationError as error:
        raise DamagedFile(f"{path}: {one_line(error)}; {_again(path)}") from None


def check_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Raises a DamagedFile of one line where a file of these names in `folder` has another SHA-256."""
    for name, sha256 in digests.items():
        try:
            came = digest(folder / name)
        except OSError as error:
            raise DamagedFile(f"want {folder / name}, got: {error.strerror}; {_again(folder)}") from None
        if came != sha256:
            raise DamagedFile(f"want {folder / name} as it was written, got another SHA-256; {_again(folder)}")


def _again(path: Path) -> str:
    return f"remove {path}, and --resume makes it again"


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a .safetensors file, whole or not at all; that it cannot be written is an OSError as for any file."""
    with whole(path) as neighbour:
        try:
            save_file(dict(tensors), neighbour)
        except SafetensorError as error:
            number = re.search(r"\(os error (\d+)\)", str(error))
            code = int(number[1]) if number else errno.EIO
            raise OSError(code, os.strerror(code), str(path)) from None
