"""Camelyon17-WILDS: patches of lymph node sections, with or without tumour; each hospital is a domain."""

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fdgpriv.data.dataset import Dataset
from fdgpriv.data.folder import check_folder, entries, limits, not_read
from fdgpriv.data.image_cache import Say
from fdgpriv.data.images import Progress
from fdgpriv.data.labelled_files import labelled_domains
from fdgpriv.data.names import ABOUT, DEFAULT_TARGETS, DOMAINS
from fdgpriv.data.unread import Unread

_FOLDER = "camelyon17_v1.0"
_CLASSES = ("normal", "tumor")
_SEPARATORS = (",", ";", "\t")
# not three decimals of zero: 21.000 may be 21000
_WHOLE = re.compile(r"\s*0*([0-9]{1,9})(?:[.,]0{0,2})?\s*")
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
    folder = root / _FOLDER if (root / _FOLDER).is_dir() else root
    table = folder / "metadata.csv"
    if not table.is_file():
        raise FileNotFoundError(f"want metadata.csv of camelyon17 in {root} or {root / _FOLDER}, got no such file")
    names, unread = DOMAINS["camelyon17"], Unread(folder)
    files: dict[str, list[tuple[Path, int]]] = {name: [] for name in names}
    lines: dict[Path, int] = {}
    for row in _rows(table):
        if row.path in lines:
            raise ValueError(
                f"want each patch once, got {row.path.name} in lines {lines[row.path]} and {row.line} of {table}"
            )
        lines[row.path] = row.line
        files[row.domain].append((row.path, row.label))
    if empty := [name for name in names if not files[name]]:
        raise ValueError(f"want images of each hospital in {table}, got none of {', '.join(empty)}")
    _check_patches(folder, table, lines, unread)
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


def _check_patches(place: Path, table: Path, lines: Mapping[Path, int], unread: Unread) -> None:
    """Raises ValueError if patches that the table lists are missing; counts those that it does not list.

    Args:
        place: The folder of the table and of the folder `patches`.
        table: The file.
        lines: By patch, the line that lists it.
        unread: Counts what is not read.
    """
    patches = {
        path
        for section in (entries(place / "patches", unread).folders if (place / "patches").is_dir() else ())
        for path in entries(section, unread).files
    }
    if missing := [path for path in lines if path not in patches]:
        raise ValueError(
            f"want the patches that {table} lists, got no {missing[0].relative_to(place)} of its line "
            f"{lines[missing[0]]}; missing: {len(missing):,} of {len(lines):,}"
        )
    unread.add("patches that metadata.csv does not list", patches - lines.keys())


def _rows(table: Path) -> Iterator[_Row]:
    """The rows of metadata.csv, as published or as spreadsheets and pandas save it again.

    The columns may be separated by commas, semicolons or tabs, whole numbers may have lost leading zeros or gained
    decimals of zero, and the text may begin with a byte order mark.

    Raises:
        ValueError: At the first damaged row.
    """
    names = DOMAINS["camelyon17"]
    with table.open(newline="", encoding="utf-8-sig") as file:
        line = 0
        try:
            separator = _separator(file.readline())
            file.seek(0)
            rows = csv.DictReader(file, delimiter=separator, skipinitialspace=True)
            columns = [name.strip() for name in rows.fieldnames or ()]
            if absent := [column for column in _COLUMNS if column not in columns]:
                raise ValueError(f"want the columns {', '.join(_COLUMNS)} in {table}; missing: {', '.join(absent)}")
            rows.fieldnames = columns
            for row in rows:
                line = rows.line_num
                if not any(row.values()):
                    continue
                patient, node, x, y, label, center = (
                    _whole_number(row[column], f"{column} in line {line} of {table}") for column in _COLUMNS
                )
                if center >= len(names) or label > 1:
                    raise ValueError(
                        f"want center 0 to {len(names) - 1} and tumor 0 or 1 in line {line} of {table}, "
                        f"got {center} and {label}"
                    )
                section = f"patient_{patient:03d}_node_{node}"
                path = table.parent / "patches" / section / f"patch_{section}_x_{x}_y_{y}.png"
                yield _Row(line, f"hospital_{center}", label, path)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"want UTF-8 in {table}, got other bytes after line {line}: {error.reason}; save it as CSV in UTF-8"
            ) from None
        except csv.Error as error:
            raise ValueError(f"want a readable line {line + 1} of {table}, got: {error}") from None


def _separator(header: str) -> str:
    """What separates the columns in the table's first line."""
    return max(_SEPARATORS, key=header.count)


def _whole_number(text: str | None, what: str) -> int:
    """The number in this text, which may have decimals of zero; ValueError names `what` it is."""
    number = _WHOLE.fullmatch(text or "")
    if number is None:
        raise ValueError(f"want a whole number for {what}, got {str(text)!r:.60}; unpack the published file again")
    return int(number[1])
