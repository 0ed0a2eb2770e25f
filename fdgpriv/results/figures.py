"""Figures of the report: image grids of truth, reconstruction and controls, and of stylised images.

matplotlib is imported when the first is drawn: a training draws none.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fdgpriv.artifacts.moments import pooled_style
from fdgpriv.data.dataset import Domain
from fdgpriv.models.style_codec import StyleCodec
from fdgpriv.results.picture_grid import COLUMNS, PictureGrid
from fdgpriv.utils.files import write_bytes
from fdgpriv.utils.warnings_filter import warnings_ignored

if TYPE_CHECKING:
    from fdgpriv.utils.drawing import Axes, Figure


def grid(rows: Sequence[Mapping[str, Tensor]], labels: Sequence[str], path: Path) -> None:
    """Rows of images (3, H, W) in [0, 1] by column name, written as a PNG; columns without images are omitted.

    The PNG says where each image lies (`PictureGrid`).
    """
    columns = [name for name in COLUMNS if any(name in row for row in rows)]
    images = [[row.get(name) for name in columns] for row in rows]
    _write(images, [COLUMNS[name] for name in columns], labels, path, columns)


def stylised(codec: StyleCodec, domains: Sequence[Domain], path: Path) -> None:
    """One image per domain stylised with the style of every domain, written as a PNG."""
    styles = [pooled_style(codec.encode(domain.part(0, 100).images)) for domain in domains]
    rows = [
        [domain.images[0], codec(domain.images[:1])[0].clamp(0, 1)]
        + [codec.stylise(domain.images[:1], mean, std)[0].clamp(0, 1) for mean, std in styles]
        for domain in domains
    ]
    heads = ["image", "round trip"] + [f"as {domain.name}" for domain in domains]
    _write(rows, heads, [domain.name for domain in domains], path)


def _write(
    rows: Sequence[Sequence[Tensor | None]],
    heads: Sequence[str],
    labels: Sequence[str],
    path: Path,
    columns: Sequence[str] = (),
) -> None:
    """Writes the images on one canvas as a PNG, transparent for missing images; with names of columns as a `PictureGrid`."""
    from fdgpriv.utils.drawing import Figure, default_style

    side = next(image.shape[-1] for row in rows for image in row if image is not None)
    step = side + max(1, side // 16)
    canvas = torch.zeros(len(rows) * step, len(heads) * step, 4)
    for r, row in enumerate(rows):
        for c, image in enumerate(row):
            if image is not None:
                cell = canvas[r * step : r * step + side, c * step : c * step + side]
                cell[..., :3], cell[..., 3] = image.permute(1, 2, 0).clamp(0, 1), 1.0
    png = BytesIO()
    with default_style():
        figure = Figure(figsize=(1.15 * len(heads) + 1.1, 1.15 * len(rows) + 0.5), dpi=110)
        axis = figure.add_subplot(frame_on=False)
        axis.imshow(canvas.numpy(), interpolation="nearest")
        axis.set_xticks(
            [c * step + side / 2 for c in range(len(heads))],
            [h.replace(" ", "\n", 1) for h in heads],
            fontsize=8,
            parse_math=False,  # a name may hold dollar signs
        )
        axis.set_yticks([r * step + side / 2 for r in range(len(rows))], labels, fontsize=8, parse_math=False)
        axis.tick_params(length=0, labeltop=True, labelbottom=False)
        with warnings_ignored(UserWarning):  # long names, or letters missing in the font
            figure.tight_layout(pad=0.4)
            figure.draw_without_rendering()
            layout = _layout(figure, axis, columns, labels, side, step) if columns else {}
            figure.savefig(png, format="png", metadata={"Software": None, **layout})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, png.getvalue())


def _layout(
    figure: "Figure", axis: "Axes", columns: Sequence[str], labels: Sequence[str], side: int, step: int
) -> dict[str, str]:
    """Where the drawn images lie, as metadata of the PNG."""
    (left, top), (right, _) = axis.transData.transform([(-0.5, -0.5), (side - 0.5, side - 0.5)])
    shown = float(right - left)
    grid = PictureGrid(
        columns=tuple(columns),
        rows=tuple(label.replace("\n", " ") for label in labels),
        left=float(left),
        top=float(figure.bbox.height - top),
        step=shown * step / side,
        shown=shown,
        side=side,
    )
    return grid.metadata()


def rows_of(shown: Sequence[tuple[Tensor, Mapping[str, Tensor]]], count: int) -> list[dict[str, Tensor]]:
    """`count` of the shown targets, evenly spaced: the true image and the images by column name."""
    chosen = torch.linspace(0, len(shown) - 1, min(count, len(shown))).round().long().unique().tolist()
    return [{"truth": shown[i][0], **shown[i][1]} for i in chosen]
