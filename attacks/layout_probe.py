"""Layout probe: where in the image behind a single-image style is it light, and where dark?

Reference: CCST, section 1: styles "do not contain spatial structural information about the image content" (METHODS 5e,
H-C7).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.roles import Attack

from ._linear import linear_reader
from ._reading import practise, vectors


@dataclass(frozen=True)
class LayoutProbe(Attack):
    """Ridge regression from a single image's style to its layout; several images behind a style have no one layout.

    What differs between cells is structure. Brightness, contrast and which of two sides is the lighter one are colour,
    which a style may carry: they are taken out of the layout, out of the style that is read, and out of the score.

    Attributes:
        cells: To a side of the grid over which brightness is averaged.
    """

    family: ClassVar[str] = "property"
    reads: ClassVar[tuple[str, ...]] = (StyleStatistics.kind,)
    headline: ClassVar[str] = "r2"
    higher_leaks: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    threats: ClassVar[tuple[str, ...]] = ("server", "client", "third_party")
    sizes: ClassVar[tuple[int | None, ...]] = (1,)
    by_layer: ClassVar[bool] = True

    cells: int = 4

    def __post_init__(self) -> None:
        if self.cells < 2:
            raise ValueError(f"layout_probe.cells: want at least 2, got {self.cells}")

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        made = practise(view, 0)
        index = torch.cat(list(made.members))
        seen = _unit(layout(made.images[index], self.cells))
        inputs, asked = _unit(made.inputs), _unit(vectors(view, questions))
        center = inputs.mean(0)
        spread = (inputs - center).square().mean().sqrt() + 1e-8
        weight, bias = linear_reader((inputs - center).double() / spread, seen.double())
        guesses = ((asked - center).double() / spread @ weight.T + bias).float()
        of_domain = made.domains[index]
        blind: dict[str, list[Guess]] = {
            "noise": list(torch.randn(30, self.cells**2, generator=rng)),
            "mean_image": [seen.mean(0)],
            **{f"domain_mean:{d.name}": [seen[of_domain == i].mean(0)] for i, d in enumerate(view.auxiliary)},
        }
        return list(guesses), blind

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        """The squared correlation over the cells; 0 where the guess or the truth is the same everywhere."""
        told = torch.stack(list(guesses)).double()
        true = layout(torch.stack([truth.images[0] for truth in truths]).double(), self.cells)
        return (_unit(told - told.mean(1, keepdim=True)) * _unit(true)).sum(1).square().clamp_max(1)


def layout(images: Tensor, cells: int) -> Tensor:
    """(N, cells * cells): the brightness of images (N, 3, H, W) averaged over a grid, row by row, less its mean."""
    grid = F.adaptive_avg_pool2d(images.mean(1, keepdim=True), cells).flatten(1)
    return grid - grid.mean(1, keepdim=True)


def _unit(rows: Tensor) -> Tensor:
    """Rows (N, D) of length 1; one that is zero up to rounding becomes zero."""
    length = rows.norm(dim=1, keepdim=True)
    return torch.where(length > 1e-6, rows / length.clamp_min(1e-6), 0)
