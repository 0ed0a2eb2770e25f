"""Camelyon17-WILDS: patches of lymph node sections, with or without tumour; each hospital is a domain."""

import csv
from collections.abc import Iterator
from pathlib import Path

import torch

from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.data.folder import check_folder, limits
from fdgpriv.data.image_cache import Say, stored_images
from fdgpriv.data.images import Progress
from fdgpriv.data.names import DOMAINS

_FOLDER = "camelyon17_v1.0"
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
        ValueError: It lacks a column or a hospital, or a row is damaged.

    Reference: Bandi et al., "From detection of individual metastases to classification of lymph node status at the
        patient level", IEEE TMI 2018; Koh et al., "WILDS", ICML 2021.
    """
    check_folder(root)
    place = root / _FOLDER if (root / _FOLDER).is_dir() else root
    table = place / "metadata.csv"
    if not table.is_file():
        raise FileNotFoundError(f"want metadata.csv of camelyon17 in {root} or {root / _FOLDER}, got no such file")
    names = DOMAINS["camelyon17"]
    paths, labels = {name: list[Path]() for name in names}, {name: list[int]() for name in names}
    for name, label, path in _rows(table):
        paths[name].append(path)
        labels[name].append(label)
    if empty := [name for name in names if not paths[name]]:
        raise ValueError(f"want images of each hospital in {table}, got none of {', '.join(empty)}")
    pixels = stored_images([path for name in names for path in paths[name]], image_size, progress, say)
    parts = pixels.split([len(paths[name]) for name in names])
    domains = tuple(Domain(name, part, torch.tensor(labels[name])) for name, part in zip(names, parts, strict=True))
    about = (
        "Camelyon17-WILDS (Bandi et al., 2018; Koh et al., ICML 2021): 455,954 patches of lymph node sections from five "
        "hospitals, numbered from 0; whether the middle has tumour."
    )
    return Dataset(
        "camelyon17", ("normal", "tumor"), domains, names[2], about, limits(image_size), flip=True, translate=0.1
    )


def _rows(table: Path) -> Iterator[tuple[str, int, Path]]:
    """The domain, label and file of each row of metadata.csv; ValueError at the first damaged one."""
    names, seen = DOMAINS["camelyon17"], set[Path]()
    with table.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        try:
            if absent := [column for column in _COLUMNS if column not in (rows.fieldnames or ())]:
                raise ValueError(f"want the columns {', '.join(_COLUMNS)} in {table}; missing: {', '.join(absent)}")
            for row in rows:
                values = [row[column] for column in _COLUMNS]
                if not all(value and value.isdecimal() for value in values):
                    raise ValueError(f"want a number in each column in line {rows.line_num} of {table}, got {values}")
                patient, node, x, y, label, center = values
                name = f"hospital_{center}"
                if name not in names or label not in ("0", "1"):
                    raise ValueError(
                        f"want center 0 to {len(names) - 1} and tumor 0 or 1 in line {rows.line_num} of {table}, "
                        f"got {center} and {label}"
                    )
                section = f"patient_{patient}_node_{node}"
                path = table.parent / "patches" / section / f"patch_{section}_x_{x}_y_{y}.png"
                if path in seen:
                    raise ValueError(f"want each patch once, got {path.name} again in line {rows.line_num} of {table}")
                seen.add(path)
                yield name, int(label), path
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"want a readable line {rows.line_num + 1} of {table}, got: {error}") from None
