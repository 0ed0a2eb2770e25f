"""Camelyon17-WILDS: patches of lymph node sections, with or without tumour; each hospital is a domain."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fdgpriv.data.dataset import Dataset
from fdgpriv.data.folder import check_folder, entries, limits, not_read
from fdgpriv.data.image_cache import Say
from fdgpriv.data.images import Progress
from fdgpriv.data.labelled_files import labelled_domains
from fdgpriv.data.names import ABOUT, DEFAULT_TARGETS, DOMAINS
from fdgpriv.data.table import ListedFiles, check_none_empty, find_table, table_rows, whole_number
from fdgpriv.data.unread import Unread

_CLASSES = ("normal", "tumor")
_COLUMNS = ("patient", "node", "x_coord", "y_coord", "tumor", "center")


def camelyon17(root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
    """The dataset in `root`, as WILDS unpacks it: metadata.csv and patches/patient_*/patch_patient_*.png.

    Args:
        root: The folder camelyon17_v1.0, or the one that it lies in.
        image_size: S of the images (N, 3, S, S) uint8, in pixels; the files have 96.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use.

    Raises:
        FileNotFoundError: There is no metadata.csv.
        ValueError: It lacks a column, a hospital or a patch that it lists, or a row is damaged.

    Reference: Bandi et al., "From detection of individual metastases to classification of lymph node status at the
        patient level", IEEE TMI 2018; Koh et al., "WILDS", ICML 2021.
    """
    check_folder(root)
    table = find_table(root, "camelyon17_v1.0", "camelyon17")
    names, unread, listed = DOMAINS["camelyon17"], Unread(table.parent), ListedFiles(table, "patches")
    files: dict[str, list[tuple[Path, int]]] = {name: [] for name in names}
    for row in _rows(table):
        listed.add(row.path, row.line)
        files[row.domain].append((row.path, row.label))
    check_none_empty(files, "hospital", table)
    listed.check(_patches(table.parent / "patches", unread), unread)
    domains, warnings = labelled_domains(files, _CLASSES, image_size, progress, say)
    about = f"{ABOUT['camelyon17']}{not_read(unread, say)}"
    return Dataset(
        "camelyon17",
        _CLASSES,
        domains,
        DEFAULT_TARGETS["camelyon17"],
        about,
        limits(image_size),
        flip=True,
        translate=0.1,
        warnings=warnings,
    )


class _Row(NamedTuple):
    """A row of metadata.csv: its line, and the domain, label and file of its patch."""

    line: int
    domain: str
    label: int
    path: Path


def _patches(folder: Path, unread: Unread) -> list[Path]:
    """The files of all sections."""
    sections = entries(folder, unread).folders if folder.is_dir() else []
    return [path for section in sections for path in entries(section, unread).files]


def _rows(table: Path) -> Iterator[_Row]:
    """The rows of metadata.csv.

    Raises:
        ValueError: At the first damaged row.
    """
    names = DOMAINS["camelyon17"]
    for line, values in table_rows(table, _COLUMNS):
        patient, node, x, y, label, center = (
            whole_number(value, f"{column} in line {line} of {table}")
            for column, value in zip(_COLUMNS, values, strict=True)
        )
        if center >= len(names) or label > 1:
            raise ValueError(
                f"want center 0 to {len(names) - 1} and tumor 0 or 1 in line {line} of {table}, got {center} and {label}"
            )
        section = f"patient_{patient:03d}_node_{node}"
        path = table.parent / "patches" / section / f"patch_{section}_x_{x}_y_{y}.png"
        yield _Row(line, f"hospital_{center}", label, path)
