"""Loads datasets by name: the built-in digits, and images in folders."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from fdgpriv.data.names import DEFAULT_SIZE, DOMAINS, check_dataset, check_domain, check_size, names
from fdgpriv.utils.file_names import expanded

if TYPE_CHECKING:
    from fdgpriv.data.dataset import Dataset
    from fdgpriv.data.image_cache import Say
    from fdgpriv.data.images import Progress

__all__ = ["DEFAULT_SIZE", "DOMAINS", "check_dataset", "check_domain", "check_size", "load", "names"]


def load(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    image_size: int | None = None,
    divided: bool = False,
    progress: "Progress | None" = None,
    say: "Say | None" = None,
) -> "Dataset":
    """The dataset called `name`, images (N, 3, S, S).

    Args:
        name: One of `names()`.
        root: The folder of a folder dataset, or the table of `folder`; None for `digits`, which is built in.
        image_size: S in pixels; 32 when None. `digits` has no other.
        divided: Whether the images of `folder` are divided among clients.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use.
    """
    check_dataset(name)
    size = DEFAULT_SIZE if image_size is None else image_size
    check_size(size)
    if name == "digits":
        if root is not None:
            raise ValueError(f"digits is built in: want no folder, got {os.fspath(root)}")
        if size != DEFAULT_SIZE:
            raise ValueError(f"want an image size of {DEFAULT_SIZE} pixels for digits, got {size}")
        from fdgpriv.data.digits import digits

        return digits()
    if root is None:
        raise ValueError(f"want the folder of {name}, got none")
    from fdgpriv.data.benchmarks import BENCHMARKS
    from fdgpriv.data.camelyon17 import camelyon17
    from fdgpriv.data.dataset import digest
    from fdgpriv.data.folder import folder
    from fdgpriv.data.given import given, listed
    from fdgpriv.data.iwildcam import iwildcam
    from fdgpriv.data.table import is_table

    root = expanded(root)
    loaders = {
        "folder": given if divided else listed if is_table(root) else folder,
        "camelyon17": camelyon17,
        "iwildcam": iwildcam,
        **{benchmark.name: benchmark.load for benchmark in BENCHMARKS},
    }
    dataset = loaders[name](root, size, progress, say)
    return replace(dataset, sha256=digest(dataset.classes, dataset.domains, dataset.clients))
