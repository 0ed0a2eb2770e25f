"""iWildCam2020-WILDS: photographs of camera traps by species; locations are domains, as in the official split."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fdgpriv.data.dataset import Dataset
from fdgpriv.data.folder import check_folder, entries, limits, not_read
from fdgpriv.data.image_cache import Say
from fdgpriv.data.images import Progress
from fdgpriv.data.labelled_files import labelled_domains
from fdgpriv.data.names import ABOUT, DEFAULT_TARGETS, LEAST_IMAGES
from fdgpriv.data.table import ListedFiles, check_none_empty, find_table, table_rows, whole_number
from fdgpriv.data.unread import Unread
from fdgpriv.utils.file_names import check_name

_SOURCES, _TARGETS, _UNUSED = "train", ("test", "val"), ("id_val", "id_test")
_SPLITS = (_SOURCES, *_TARGETS, *_UNUSED)
_COLUMNS = ("split", "location_remapped", "y", "filename")
_BURSTS = (
    "Cameras take bursts: images that a client holds out, public ones, and those of other clients of its location may nearly "
    "equal those that it trains on."
)

LabelledFiles = list[tuple[Path, int]]  # with their labels


def iwildcam(root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
    """The dataset in `root`, as WILDS unpacks it: metadata.csv, categories.csv and train/*.jpg, the images of all splits.

    By the official split: each location of the split ``train`` with at least `LEAST_IMAGES` images is a source domain,
    ``location_000`` and so on; the splits ``test`` (the default) and ``val``, of other locations, are target domains and
    never sources. ``id_val`` and ``id_test``, later images of the locations of ``train``, are not read.

    Args:
        root: The folder iwildcam_v2.0, or the one that it lies in.
        image_size: S of the images (N, 3, S, S) uint8, in pixels.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use, and with one that counts what is not read.

    Raises:
        FileNotFoundError: There is no metadata.csv or no categories.csv.
        ValueError: One lacks a column, a class, a split or an image that it lists, a row is damaged, a location is of
            several splits, or fewer than two locations have enough images.

    Reference: Beery et al., "The iWildCam 2020 competition dataset", 2020; Koh et al., "WILDS", ICML 2021.
    """
    check_folder(root)
    table = find_table(root, "iwildcam_v2.0", "iwildcam")
    folder, unread, listed = table.parent / "train", Unread(table.parent), ListedFiles(table, "images")
    rows = list(_rows(table, folder))
    for row in rows:
        listed.add(row.path, row.line)
    listed.check(entries(folder, unread).files if folder.is_dir() else [], unread)
    sources = _sources(rows, table, unread)
    targets: dict[str, LabelledFiles] = {
        name: [(row.path, row.label) for row in rows if row.split == name] for name in _TARGETS
    }
    check_none_empty(targets, "target split", table)
    for split in _UNUSED:
        unread.add(f"images of the split {split}", [row.path for row in rows if row.split == split])
    files = {**sources, **targets}
    classes = _classes(table.with_name("categories.csv"), {label for pairs in files.values() for _, label in pairs})
    domains, warnings = labelled_domains(files, classes, image_size, progress, say)
    return Dataset(
        "iwildcam",
        classes,
        domains,
        DEFAULT_TARGETS["iwildcam"],
        f"{ABOUT['iwildcam']} Here {len(sources)} locations are source domains.{not_read(unread, say)}",
        f"{limits(image_size)} {_BURSTS}",
        flip=True,
        translate=0.1,
        warnings=warnings,
        targets=_TARGETS,
    )


class _Photograph(NamedTuple):
    """A row of metadata.csv: its line, and the split, location, label and file of a photograph."""

    line: int
    split: str
    location: int
    label: int
    path: Path


def _rows(table: Path, folder: Path) -> Iterator[_Photograph]:
    """The rows of metadata.csv; their files are in `folder`.

    Raises:
        ValueError: At the first damaged row.
    """
    split_of: dict[int, str] = {}
    for line, (split, location_text, label_text, name) in table_rows(table, _COLUMNS):
        place = f"in line {line} of {table}"
        if split not in _SPLITS:
            raise ValueError(f"want a split of {', '.join(_SPLITS)} {place}, got {split!r:.60}")
        if not name or PurePosixPath(name).name != name or "\\" in name or name in (".", ".."):
            raise ValueError(f"want the name of a file {place}, got {name!r:.60}")
        location = whole_number(location_text, f"location_remapped {place}")
        if split not in _UNUSED and (first := split_of.setdefault(location, split)) != split:
            raise ValueError(
                f"want the location {location} in one of {_SOURCES}, {', '.join(_TARGETS)}; got {split} {place} "
                f"and {first} before"
            )
        yield _Photograph(line, split, location, whole_number(label_text, f"y {place}"), folder / name)


def _sources(rows: Collection[_Photograph], table: Path, unread: Unread) -> dict[str, LabelledFiles]:
    """By domain, the images of each location of the split `_SOURCES` that has enough; counts those of the others."""
    by_location: dict[int, LabelledFiles] = defaultdict(list)
    for row in rows:
        if row.split == _SOURCES:
            by_location[row.location].append((row.path, row.label))
    few = [files for files in by_location.values() if len(files) < LEAST_IMAGES]
    unread.add(f"images of locations with fewer than {LEAST_IMAGES}", [path for files in few for path, _ in files])
    enough = {number: files for number, files in by_location.items() if len(files) >= LEAST_IMAGES}
    if len(enough) < 2:
        raise ValueError(
            f"want at least two locations of the split {_SOURCES} with {LEAST_IMAGES} images or more in {table}, "
            f"got {len(enough)}"
        )
    return {f"location_{number:03d}": enough[number] for number in sorted(enough)}


def _classes(table: Path, labels: Collection[int]) -> tuple[str, ...]:
    """The names of the classes up to the last of these labels; categories.csv has others, of no image.

    Raises:
        FileNotFoundError: There is no such table.
        ValueError: It is damaged, or a class has no name.
    """
    if not table.is_file():
        raise FileNotFoundError(f"want categories.csv of iwildcam beside metadata.csv, got no {table}")
    names: dict[int, str] = {}
    for line, (number, name) in table_rows(table, ("y", "name")):
        check_name(name, f"name in line {line} of {table}")
        names.setdefault(whole_number(number, f"y in line {line} of {table}"), name)
    last = max(labels)
    unnamed = next((label for label in chain(sorted(labels), range(last)) if not names.get(label)), None)
    if unnamed is not None:
        raise ValueError(f"want the names of the classes of all images in {table}, got none of {unnamed}")
    return tuple(names[label] for label in range(last + 1))
