"""The figure of reconstructions for a paper: private images above what attacks draw of them, and above the best control."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TypeAlias

import numpy as np

from fdgpriv.utils.drawing import Figure, default_style
from fdgpriv.utils.warnings_filter import warnings_ignored

from ._figures import PAPER, short
from ._pictures import Strips, as_sent, strips
from ._reconstructions import Reconstruction
from ._words import verdict_words

MAX_PANELS = 4  # on one page
_SIDE = 0.62  # inches, of an image
_HEADING = 1.6  # inches, for the names of the rows
_TITLE = 0.55  # inches, for the title of a panel

Pictured: TypeAlias = tuple[Reconstruction, tuple[Strips, ...]]


def with_pictures(entries: Sequence[Reconstruction], folder: Path) -> tuple[Pictured, ...]:
    """The first entries whose pictures are in the folder, with them; each picture once."""
    by_file = {entry.file: entry for entry in reversed(entries)}
    ordered = [entry for entry in entries if by_file[entry.file] is entry]
    pictured = (
        (entry, as_sent(strips(folder, entry.file, entry.columns, across=True), entry.level)) for entry in ordered
    )
    return tuple(pair for pair in pictured if pair[1])[:MAX_PANELS]


def reconstruction_figure(pictured: Sequence[Pictured]) -> Figure:
    """A panel for each entry, of at least one: a row for each column of its grid, images of one number side by side."""
    counts = [[part.count for part in parts] for _, parts in pictured]
    heights = [_TITLE + _SIDE * len(parts[0].columns) for _, parts in pictured]
    width = _HEADING + _SIDE * max(sum(of_entry) for of_entry in counts)
    with default_style({**PAPER.style(), "font.size": 9}), warnings_ignored(UserWarning):
        figure = Figure(figsize=(width, sum(heights)), layout="constrained")
        panels = figure.subfigures(len(pictured), 1, squeeze=False, height_ratios=heights).ravel()
        for (entry, parts), of_entry, panel in zip(pictured, counts, panels, strict=True):
            panel.suptitle(short(f"{verdict_words(entry.verdict, entry.grade)}: {entry.title}", 90), fontsize=9)
            axes = panel.subplots(len(parts[0].columns), len(parts), squeeze=False, width_ratios=of_entry)
            for column, part in enumerate(parts):
                axes[0, column].set_title(fill(part.label, 12 * part.count), fontsize=8)
                for row, images in enumerate(part.columns.values()):
                    axes[row, column].imshow(np.asarray(images), interpolation="nearest")
                    axes[row, column].set(xticks=[], yticks=[])
                    axes[row, column].spines[:].set_visible(False)
            headings = dict(zip(entry.columns, entry.headings, strict=True))
            for row, name in enumerate(parts[0].columns):
                axes[row, 0].set_ylabel(headings[name].replace(": ", ":\n"), rotation=0, ha="right", va="center")
    return figure
