"""Loads domains from lists of image files with their labels, and finds images that are there twice."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from fdgpriv.data.dataset import Domain
from fdgpriv.data.image_cache import Say, stored_images
from fdgpriv.data.images import Progress
from fdgpriv.data.repeats import repeats


def labelled_domains(
    files: Mapping[str, Sequence[tuple[Path, int]]],
    classes: Sequence[str],
    image_size: int,
    progress: Progress | None = None,
    say: Say | None = None,
) -> tuple[tuple[Domain, ...], tuple[str, ...]]:
    """The domains, images (N, 3, S, S) uint8 with S = `image_size`, and sentences about images that are there twice.

    Args:
        files: By domain, image files and their labels.
        classes: The names of the classes.
        image_size: S, in pixels.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use.

    Raises:
        ValueError: Fewer than two classes have images, or an image cannot be read.
    """
    paths = [path for pairs in files.values() for path, _ in pairs]
    if len(with_images := {label for pairs in files.values() for _, label in pairs}) < 2:
        named = ", ".join(classes[label] for label in with_images) or "none"
        raise ValueError(f"want images of at least two classes in {_common_folder(paths)}, got {named}")
    pixels = stored_images(paths, image_size, progress, say)
    parts = pixels.split([len(pairs) for pairs in files.values()])
    domains = tuple(
        Domain(name, part, torch.tensor([label for _, label in pairs]))
        for (name, pairs), part in zip(files.items(), parts, strict=True)
    )
    folder = _common_folder(paths)
    names = [[os.path.relpath(path, folder) for path, _ in pairs] for pairs in files.values()]
    return domains, repeats(domains, classes, names)


def _common_folder(paths: Sequence[Path]) -> str:
    return os.path.commonpath([path.parent for path in paths])
