"""Layout probe: infers where an image is light and where it is dark from its single-image style.

Reference: CCST, section 1: styles "do not contain spatial structural information about the image content" (hypothesis
H-C7).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.statistics.ridge import ridge_regression
from fdgpriv.tasks.layout import Layout, layout, unit
from fdgpriv.utils.fields import TwoOrMore

from ._simulation import simulate


@dataclass(frozen=True)
class LayoutProbe(Attack):
    """Ridge regression from a single-image style to the image's layout; styles of several images have no single layout.

    Differences between cells are structure. Brightness, contrast, and the sign of the contrast are colour, which a
    style may carry: they are removed from the layout, from the style, and from the score.

    Attributes:
        cells: Per side of the grid over which brightness is averaged.
    """

    reads = (StyleStatistics,)
    task = Layout()
    threats = ("server", "client", "third_party")
    group_sizes = (1,)
    ablations = ("layer",)

    cells: TwoOrMore = 4

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        simulated = simulate(adversary, 0)
        index = torch.cat(list(simulated.members))
        layouts = unit(layout(simulated.images[index], self.cells))
        inputs, vectors = unit(simulated.inputs), unit(adversary.vectors(observations))
        center = inputs.mean(0)
        spread = (inputs - center).square().mean().sqrt() + 1e-8
        weight, bias = ridge_regression((inputs - center).double() / spread, layouts.double())
        return ((vectors - center).double() / spread @ weight.T + bias).float()
