"""Pictures for the report: truth, reconstruction and controls side by side; the style encoder's own proof."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from fdgpriv.federation import Domain
from fdgpriv.models.style_codec import StyleCodec
from fdgpriv.style import pooled_style

matplotlib.use("Agg")

from matplotlib.figure import Figure

COLUMNS = {
    "truth": "truth",
    "attack": "reconstruction",
    "autoencoder": "from its own style",
    "nearest_own": "nearest own image",
    "mean_image": "public mean",
    "domain_mean": "domain mean",
    "other_client": "other client",
    "random_style": "random style",
    "unconditional": "unconditional",
}


def grid(rows: Sequence[Mapping[str, Tensor]], labels: Sequence[str], path: Path) -> None:
    """Rows of images (3, H, W) in [0, 1] by column name, written as a PNG; a column nobody has is left out."""
    columns = [name for name in COLUMNS if any(name in row for row in rows)]
    _write([[row.get(name) for name in columns] for row in rows], [COLUMNS[name] for name in columns], labels, path)


def stylised(codec: StyleCodec, domains: Sequence[Domain], path: Path) -> None:
    """One image of each domain given the style of every domain, by the style encoder and decoder, as a PNG."""
    styles = [pooled_style(codec.encode(domain.images[:100])) for domain in domains]
    rows = [
        [domain.images[0], codec(domain.images[:1])[0].clamp(0, 1)]
        + [codec.stylise(domain.images[:1], mean, std)[0].clamp(0, 1) for mean, std in styles]
        for domain in domains
    ]
    heads = ["image", "round trip"] + [f"as {domain.name}" for domain in domains]
    _write(rows, heads, [domain.name for domain in domains], path)


def _write(rows: Sequence[Sequence[Tensor | None]], heads: Sequence[str], labels: Sequence[str], path: Path) -> None:
    width, height = 1.15 * len(heads) + 1.1, 1.15 * len(rows) + 0.5
    figure = Figure(figsize=(width, height), dpi=110)
    axes = figure.subplots(len(rows), len(heads), squeeze=False)
    for number, (images, label, row) in enumerate(zip(rows, labels, axes, strict=True)):
        for image, head, axis in zip(images, heads, row, strict=True):
            axis.set_xticks([])
            axis.set_yticks([])
            for spine in axis.spines.values():
                spine.set_visible(False)
            if image is not None:
                axis.imshow(image.permute(1, 2, 0).clamp(0, 1).numpy(), interpolation="nearest")
            if number == 0:
                axis.set_title(head.replace(" ", "\n", 1), fontsize=8)
        row[0].set_ylabel(label.replace("$", r"\$"), fontsize=8, rotation=0, ha="right", va="center")
    figure.tight_layout(pad=0.4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def rows_of(shown: Sequence[tuple[Tensor, Mapping[str, Tensor]]], count: int) -> list[dict[str, Tensor]]:
    """`count` of the shown targets, spread over all of them: the true image beside what each name drew of it."""
    chosen = torch.linspace(0, len(shown) - 1, min(count, len(shown))).round().long().unique().tolist()
    return [{"truth": shown[i][0], **shown[i][1]} for i in chosen]
