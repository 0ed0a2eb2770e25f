"""Laplace mechanism on what clients share: pure epsilon, with clipping and sensitivity in the L1 norm.

Reference: Dwork, McSherry, Nissim and Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.privacy.accounting import laplace_scale
from fdgpriv.privacy.vectors import Norm
from fdgpriv.utils.fields import PositiveFloat

from ._style_noise import StyleNoise


@dataclass(frozen=True)
class Laplace(StyleNoise):
    """Pure epsilon-differential privacy (delta = 0) of all statistics that one client shares over a whole run.

    As `gaussian`, with vectors clipped to L1 norm C and Laplace noise of scale R Delta / epsilon for R releases (basic
    composition). For vectors of many entries the noise is far larger than that of `gaussian`.

    Attributes:
        epsilon: The budget of the whole run.
    """

    norm: ClassVar[Norm] = 1

    epsilon: PositiveFloat = 4.0

    @property
    def multiplier(self) -> float:
        """Scale of the noise over the sensitivity."""
        return laplace_scale(self.epsilon, 1.0, self.releases)

    def noise(self, shape: Sequence[int], rng: torch.Generator) -> Tensor:
        signs = torch.randint(2, tuple(shape), generator=rng) * 2.0 - 1
        return signs * torch.empty(*shape, dtype=torch.float64).exponential_(generator=rng)

    def score(self, releases: Tensor, centers: tuple[Tensor, Tensor]) -> Tensor:
        first, second = centers
        return (releases - second).abs().sum(1) - (releases - first).abs().sum(1)

    def budget(self) -> tuple[float, float]:
        return self.epsilon, 0.0
