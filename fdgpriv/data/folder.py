"""Loads images from folders ROOT/<domain>/<class>/*.jpg."""

import filecmp
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.data.image_cache import Say
from fdgpriv.data.images import SUFFIXES, Progress
from fdgpriv.data.labelled_files import labelled_domains
from fdgpriv.data.names import ABOUT, GIVEN_LAYOUT, LAYOUT
from fdgpriv.data.splits import check_no_splits
from fdgpriv.data.unread import CIRCLE, HIDDEN, INSIDE, NESTED, NO_IMAGE, OUTSIDE, Unread
from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.user_names import plain

_HIDDEN = (".", "__MACOSX")  # beginnings of names


class Entries(NamedTuple):
    """What lies in a folder, sorted by name, without hidden entries."""

    folders: list[Path]
    files: list[Path]


def folder(root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
    """The dataset in `root`, laid out as ROOT/<domain>/<class>/*.jpg; the last domain is the default target.

    Args:
        root: Contains one folder per domain with one folder per class; all domains have the same classes.
        image_size: S of the images (N, 3, S, S), in pixels.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use, and with one that counts what is not read.
    """
    check_folder(root)
    unread = Unread(root)
    places, files = entries(root, unread)
    unread.add(OUTSIDE, files)
    domains_in = by_name(places)
    check_no_splits(domains_in, root, f"a folder of each domain ({LAYOUT})")
    if len(domains_in) == 1:  # a folder of images with its splits in it
        inside = [entries(place, Unread(root)).folders for place in places]
        check_no_splits(
            by_name(path for paths in inside for path in paths), places[0], f"a folder of each class ({LAYOUT})"
        )
    if len(domains_in) < 2:
        got = ", ".join(domains_in) or "none"
        raise ValueError(f"want at least two domains in {root} ({LAYOUT}), got {got}")
    domains, classes, warnings = read_domains(domains_in, image_size, unread, progress, say)
    about = f"{ABOUT['folder']}: {len(domains)} domains, {len(classes)} classes.{not_read(unread, say)}"
    return Dataset(
        "folder",
        classes,
        domains,
        domains[-1].name,
        about,
        limits(image_size),
        flip=True,
        translate=0.1,
        warnings=warnings,
    )


def read_domains(
    places: Mapping[str, Sequence[Path]],
    image_size: int,
    unread: Unread,
    progress: Progress | None = None,
    say: Say | None = None,
) -> tuple[tuple[Domain, ...], tuple[str, ...], tuple[str, ...]]:
    """The domains, their classes, sorted, and sentences about images that are there twice.

    All domains must have the same classes.

    Args:
        places: By domain, the folders that hold its classes' folders; more than one where it is split.
        image_size: S of the images (N, 3, S, S) uint8, in pixels.
        unread: Counts what is not read.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use.
    """
    for folder in (folder for split in places.values() for folder in split):
        check_name(folder.name, str(folder.parent))
        inside = entries(folder, unread)
        unread.add(OUTSIDE, inside.files)
        for named in inside.folders:
            check_name(named.name, str(folder))
    class_folders = {
        domain: by_name(path for folder in split for path in entries(folder, unread).folders)
        for domain, split in places.items()
    }
    for domain, folders in class_folders.items():
        check_no_splits(folders, places[domain][0], f"a folder of each class ({LAYOUT})")
    classes = sorted({name for folders in class_folders.values() for name in folders})
    if len(classes) < 2:
        raise ValueError(
            f"want folders of at least two classes in the domains of {unread.root} ({LAYOUT}), "
            f"got {', '.join(classes) or 'none'}"
        )
    for domain, folders in class_folders.items():
        if missing := [name for name in classes if name not in folders]:
            raise ValueError(
                f"want the class {missing[0]} in {places[domain][0]}, as in the other domains; got no such folder"
                f"{_if_clients(path for paths in folders.values() for path in paths)}"
            )
    files = {
        domain: [
            (path, label) for label, name in enumerate(classes) for path in _images_of_class(folders[name], unread)
        ]
        for domain, folders in class_folders.items()
    }
    domains, warnings = labelled_domains(files, classes, image_size, progress, say)
    return domains, tuple(classes), warnings


def _images_of_class(places: Iterable[Path], unread: Unread) -> list[Path]:
    """The files of one class in its folders; ValueError if one is twice among them, by name and content."""
    paths = [path for folder in places for path in class_images(folder, unread)]
    same_name: Mapping[str, list[Path]] = defaultdict(list)
    for path in paths:
        for other in same_name[path.name]:
            if filecmp.cmp(path, other, shallow=False):
                raise ValueError(f"want each image in one split, got the same in {other} and {path}")
        same_name[path.name].append(path)
    return paths


def check_folder(root: Path) -> None:
    """Raises FileNotFoundError or ValueError unless `root` is a folder."""
    if not root.exists():
        raise FileNotFoundError(f"want a folder ({LAYOUT}), got {root}, which does not exist")
    if not root.is_dir():
        raise ValueError(f"want a folder ({LAYOUT}), got the file {root}")


def entries(place: Path, unread: Unread) -> Entries:
    """The folders and the other entries of a folder; hidden ones and links to `place` or its parents are not read."""
    try:
        with os.scandir(place) as scanned:
            named = sorted((Path(entry.path), _is_folder(entry)) for entry in scanned)
    except OSError as error:
        raise ValueError(f"want a readable folder in {place}, got: {error.strerror}") from None
    hidden = [path for path, _ in named if path.name.startswith(_HIDDEN)]
    unread.add(HIDDEN, hidden)
    named = [(path, is_folder) for path, is_folder in named if path not in set(hidden)]
    parents = {place.resolve(), *place.resolve().parents}
    folders = [path for path, is_folder in named if is_folder]
    circles = [path for path in folders if path.is_symlink() and path.resolve() in parents]
    unread.add(CIRCLE, circles)
    return Entries(
        [path for path in folders if path not in circles], [path for path, is_folder in named if not is_folder]
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symbolic link to itself
        return False


def by_name(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Folders by `plain` name, sorted: folders of the same name are joined."""
    named: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        named[plain(path.name)].append(path)
    return dict(sorted(named.items()))


def class_images(place: Path, unread: Unread) -> list[Path]:
    """The image files of one class, sorted by name; ValueError if there are none."""
    if not (paths := image_files(place, unread)):
        raise ValueError(f"want at least one image ({', '.join(SUFFIXES)}) in {place}, got none{_if_clients([place])}")
    return paths


def image_files(place: Path, unread: Unread) -> list[Path]:
    """The image files in this folder, sorted by name; the others, and images in folders inside, are counted as not read."""
    inside = entries(place, unread)
    paths = [path for path in inside.files if path.suffix.lower() in SUFFIXES]
    unread.add(INSIDE, inside.folders)
    unread.add(NESTED, [path for folder in inside.folders for path in _images_below(folder)])
    unread.add(NO_IMAGE, [path for path in inside.files if path.suffix.lower() not in SUFFIXES])
    for path in paths:
        if not path.is_file() and path.exists():
            raise ValueError(f"want a readable image in {path}, got: not a regular file")
    return paths


def _images_below(place: Path) -> list[Path]:
    """The image files in this folder and those inside it, without hidden ones; links to folders are not followed."""
    images: list[Path] = []
    for folder, names, files in os.walk(place):
        names[:] = [name for name in names if not name.startswith(_HIDDEN)]
        seen = [name for name in files if Path(name).suffix.lower() in SUFFIXES and not name.startswith(_HIDDEN)]
        images += [Path(folder, name) for name in seen]
    return images


def _if_clients(places: Iterable[Path]) -> str:
    """How to read folders of clients, if these may be some: one holds folders and no images."""
    for place in places:
        inside = entries(place, Unread(place))
        if inside.folders and not any(path.suffix.lower() in SUFFIXES for path in inside.files):
            return f"; {GIVEN_LAYOUT} is read with --partition given"
    return ""


def not_read(unread: Unread, say: Say | None) -> str:
    """Says what is not read, with examples; returns the counts as a sentence for reports, empty if everything is read."""
    if not (counts := unread.summary()):
        return ""
    if say is not None:
        say(f"not read in {unread.root}: {unread.summary(examples=True)}")
    return f" Not read: {counts}."


def limits(image_size: int) -> str:
    """What conclusions images of this size allow, for reports."""
    return (
        f"Images are stretched to {image_size} x {image_size} pixels; figures do not compare with published ones "
        "at another size."
    )
