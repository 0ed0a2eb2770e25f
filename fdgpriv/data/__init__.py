"""Datasets by name: the embedded digits, and images in folders."""

import os
from collections.abc import Callable
from pathlib import Path

from fdgpriv.data import digits, folder
from fdgpriv.data._images import Progress
from fdgpriv.federation import Dataset

__all__ = ["Progress", "load", "names"]

DEFAULT_SIZE = 32
_IN_FOLDERS: dict[str, Callable[[Path, int, Progress | None], Dataset]] = {
    "folder": folder.folder,
    "pacs": folder.PACS.load,
}


def names() -> tuple[str, ...]:
    """The names of the datasets, the default one first."""
    return ("digits", *_IN_FOLDERS)


def load(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    image_size: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset called `name`, images (N, 3, S, S) float32 in [0, 1].

    Args:
        name: One of `names()`.
        root: Where a dataset in folders lies; `digits` is embedded and wants none.
        image_size: S in pixels; 32 when None.
        seed: Of what is drawn to make `digits`; folders draw nothing.
        progress: Told (done, total) after each image that is read.
    """
    if name not in names():
        raise ValueError(f"want a dataset of {', '.join(names())}; got {name!r}")
    size = DEFAULT_SIZE if image_size is None else image_size
    if not 8 <= size <= 1024:
        raise ValueError(f"want an image size of 8 to 1024 pixels, got {size}")
    if name == "digits":
        if root is not None:
            raise ValueError(f"digits is embedded: want no folder, got {os.fspath(root)}")
        return digits.digits(seed, image_size=size)
    if root is None:
        raise ValueError(f"want the folder in which {name} lies, got none")
    return _IN_FOLDERS[name](Path(root).expanduser(), size, progress)
