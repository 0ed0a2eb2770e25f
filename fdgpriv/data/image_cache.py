"""Keeps decoded and resized images on disk as one memory map per dataset and size, so that they are decoded once.

A cache file is an array (N, 3, S, S) of uint8 in numpy's format, followed by its SHA-256. The name holds a hash of the
folder, the size, and a hash of the image files' contents in their order: other images have another name, also where names,
sizes and times of the files are the same. Reading all files for it takes a tenth of the time of decoding them, or less.
It is written under a name of its own process and renamed, so that of several processes the last one's file remains.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import PIL
import torch
from numpy.lib import format as npy
from torch import Tensor

from fdgpriv.data import images, tiff
from fdgpriv.data.images import Progress, decoded

VARIABLE = "FDGPRIV_CACHE"  # environment variable with the cache folder; empty for none
_READERS, _TOGETHER = 8, 64  # threads that read files, and files that one of them reads at a time
_NAME = 16  # hexadecimal digits of a hash in a file's name
_DIGEST = hashlib.sha256().digest_size
Say = Callable[[str], None]


def cache_folder() -> Path | None:
    """The folder of the cache: $FDGPRIV_CACHE, or fdgpriv in the user's cache folder.

    None if the variable is empty, or the user has no home.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(os.path.expanduser(named)) if named else None
    base, home = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~")  # "~" where there is none
    if sys.platform != "darwin" and os.path.isabs(base):
        return Path(base) / "fdgpriv"
    if not os.path.isabs(home):
        return None
    return Path(home, "Library", "Caches", "fdgpriv") if sys.platform == "darwin" else Path(home, ".cache", "fdgpriv")


def stored_images(
    paths: Sequence[Path], image_size: int, progress: Progress | None = None, say: Say | None = None
) -> Tensor:
    """Images (N, 3, S, S) uint8 of `paths`, mapped from the cache; decoded first if they are not there.

    Args:
        paths: Image files, see `decoded`.
        image_size: S, in pixels.
        progress: Called with (done, N) after each decoded image.
        say: Called with one line if the cache is damaged or cannot be written; then images are kept in memory.

    Raises:
        ValueError: An image cannot be read.
    """
    say = say or (lambda text: None)
    shape, folder = (len(paths), 3, image_size, image_size), cache_folder()
    if folder is None:
        return _in_memory(paths, image_size, progress)
    prefix = f"images-{_hash(os.path.abspath(os.path.commonpath(paths)))}-{image_size}-"
    file = folder / f"{prefix}{_fingerprint(paths)}.npy"
    if file.exists():
        images = _mapped(file, shape)
        if images is not None:
            return images
        say(f"the image cache {file} is damaged and is built again")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(file, shape, paths, progress)
        for old in folder.glob(f"{prefix}*.npy"):
            if old != file:
                old.unlink(missing_ok=True)
        written = _mapped(file, shape)
    except OSError as error:
        say(f"the image cache {file} cannot be written ({error.strerror}): images are decoded at each start")
        written = None
    return _in_memory(paths, image_size, progress) if written is None else written


def _in_memory(paths: Sequence[Path], image_size: int, progress: Progress | None) -> Tensor:
    pixels = np.empty((len(paths), 3, image_size, image_size), dtype=np.uint8)
    for i, image in enumerate(decoded(paths, image_size, progress)):
        pixels[i] = image.transpose(2, 0, 1)
    return torch.from_numpy(pixels)


def _write(file: Path, shape: tuple[int, ...], paths: Sequence[Path], progress: Progress | None) -> None:
    """Writes the cache file of these images atomically, readable by the user alone."""
    temporary, digest = file.with_name(f".{file.name}.{os.getpid()}.part"), hashlib.sha256()
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
            npy.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for image in decoded(paths, shape[-1], progress):
                data = image.transpose(2, 0, 1).tobytes()
                digest.update(data)
                out.write(data)
            out.write(digest.digest())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _mapped(file: Path, shape: tuple[int, ...]) -> Tensor | None:
    """The images of a cache file as a private memory map; None if it is damaged."""
    try:
        pixels = np.load(file, mmap_mode="c", allow_pickle=False)
        if pixels.shape != shape or pixels.dtype != np.uint8 or not pixels.flags.c_contiguous:
            return None
        with file.open("rb") as end:
            end.seek(-_DIGEST, os.SEEK_END)
            if end.tell() != pixels.offset + pixels.nbytes:
                return None
            wanted = end.read()
        return torch.from_numpy(pixels) if hashlib.sha256(pixels.reshape(-1)).digest() == wanted else None
    except (OSError, ValueError, EOFError, AttributeError):
        return None


def _fingerprint(paths: Sequence[Path]) -> str:
    """A hash of the contents of these files in their order, and of what decodes them."""
    decoders = b"".join(Path(str(module.__file__)).read_bytes() for module in (images, tiff))
    digest = hashlib.sha256(f"Pillow {PIL.__version__}\n".encode() + decoders)
    parts = [paths[start : start + _TOGETHER] for start in range(0, len(paths), _TOGETHER)]
    with ThreadPoolExecutor(_READERS) as pool:  # one task per file would take longer than reading small files
        for contents in pool.map(_contents, parts):
            digest.update(contents)
    return digest.hexdigest()[:_NAME]


def _contents(paths: Sequence[Path]) -> bytes:
    """The SHA-256 of each file; of one that cannot be read, nothing: decoding it tells what is wrong."""
    digests = b""
    for path in paths:
        with suppress(OSError):
            digests += hashlib.sha256(path.read_bytes()).digest()
    return digests


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:_NAME]
