"""Loads images from folders ROOT/<domain>/<class>/*.jpg."""

import filecmp
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.data.image_cache import Say, stored_images
from fdgpriv.data.images import SUFFIXES, Progress
from fdgpriv.utils.file_names import check_name

LAYOUT = "ROOT/<domain>/<class>/*.jpg"


def folder(root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
    """The dataset in `root`, laid out as ROOT/<domain>/<class>/*.jpg; the last domain is the default target.

    Args:
        root: Contains one folder per domain with one folder per class; all domains have the same classes.
        image_size: S of the images (N, 3, S, S), in pixels.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use.
    """
    check_folder(root)
    places = folders(root)
    if len(places) < 2:
        got = ", ".join(place.name for place in places) or "none"
        raise ValueError(f"want at least two domains in {root} ({LAYOUT}), got {got}")
    domains, classes = read_domains({place.name: [place] for place in places}, image_size, progress, say)
    about = f"The user's own images: {len(domains)} domains, {len(classes)} classes."
    return Dataset("folder", classes, domains, domains[-1].name, about, limits(image_size), flip=True, translate=0.1)


def read_domains(
    places: Mapping[str, Sequence[Path]], image_size: int, progress: Progress | None = None, say: Say | None = None
) -> tuple[tuple[Domain, ...], tuple[str, ...]]:
    """The domains, and their classes, sorted; all domains must have the same.

    Args:
        places: By domain, the folders that hold its classes' folders; more than one where it is split.
        image_size: S of the images (N, 3, S, S) uint8, in pixels.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use.
    """
    every = [place for split in places.values() for place in split]
    for place in every:
        for named in (place, *folders(place)):
            check_name(named.name, str(place.parent))
    found = {place: [klass.name for klass in folders(place)] for place in every}
    classes = sorted({name for names in found.values() for name in names})
    if not classes:
        raise ValueError(f"want a folder per class in {every[0]} ({LAYOUT}), got none")
    files = {domain: [_images_of(name, split, found) for name in classes] for domain, split in places.items()}
    _check_disjoint(files)
    paths = [path for lists in files.values() for paths in lists for path in paths]
    pixels = stored_images(paths, image_size, progress, say)
    domains, start = [], 0
    for domain, lists in files.items():
        counts = torch.tensor([len(paths) for paths in lists])
        labels = torch.arange(len(classes)).repeat_interleave(counts)
        domains.append(Domain(domain, pixels[start : start + len(labels)], labels))
        start += len(labels)
    return tuple(domains), tuple(classes)


def _images_of(klass: str, places: Sequence[Path], found: Mapping[Path, Sequence[str]]) -> list[Path]:
    """The files of one class in a domain's folders `places`, by the classes `found` in each."""
    with_it = [place / klass for place in places if klass in found[place]]
    if not with_it:
        raise ValueError(f"want the class {klass} in {places[0]}, as in the other domains; got no such folder")
    return [path for place in with_it for path in _images(place)]


def _check_disjoint(files: Mapping[str, Sequence[Sequence[Path]]]) -> None:
    """Raises ValueError if a class of a domain has the same file, by name and content, in two of its folders."""
    for paths in (paths for lists in files.values() for paths in lists):
        by_name: dict[str, list[Path]] = {}
        for path in paths:
            for other in by_name.get(path.name, ()):
                if filecmp.cmp(path, other, shallow=False):
                    raise ValueError(f"want each image in one split, got the same in {other} and {path}")
            by_name.setdefault(path.name, []).append(path)


def check_folder(root: Path) -> None:
    """Raises FileNotFoundError or ValueError unless `root` is a folder."""
    if not root.exists():
        raise FileNotFoundError(f"want a folder ({LAYOUT}), got {root}, which does not exist")
    if not root.is_dir():
        raise ValueError(f"want a folder ({LAYOUT}), got the file {root}")


def _entries(place: Path) -> list[Path]:
    """The entries of the folder, sorted by name, without hidden files and __MACOSX folders."""
    try:
        return sorted(path for path in place.iterdir() if not path.name.startswith((".", "__MACOSX")))
    except OSError as error:
        raise ValueError(f"want a readable folder in {place}, got: {error.strerror}") from None


def folders(place: Path) -> list[Path]:
    """The folders in `place`, without symbolic links to `place` or its parents."""
    parents = {place.resolve(), *place.resolve().parents}
    return [path for path in _entries(place) if path.is_dir() and not (path.is_symlink() and path.resolve() in parents)]


def _images(place: Path) -> list[Path]:
    """The image files of one class, sorted by name."""
    paths = [path for path in _entries(place) if path.suffix.lower() in SUFFIXES and not path.is_dir()]
    if not paths:
        raise ValueError(f"want at least one image ({', '.join(SUFFIXES)}) in {place}, got none")
    for path in paths:
        if not path.is_file():
            raise ValueError(f"want a readable image in {path}, got: not a regular file")
    return paths


def limits(image_size: int) -> str:
    """What conclusions images of this size allow, for reports."""
    return (
        f"Images are stretched to {image_size} x {image_size} pixels; figures do not compare with published ones "
        "at another size."
    )
