"""Quantisation: each number of a shared vector is rounded to one of 2^bits levels of a public range.

Reference: Alistarh et al., "QSGD: communication-efficient SGD via gradient quantization and encoding", NeurIPS 2017.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fdgpriv.defense import Guarantee
from fdgpriv.privacy.vectors import VectorKind
from fdgpriv.utils.fields import PositiveFloat

from ._transform import Transform

_PEAK = 32  # default range, in root mean squares of the entries of a vector at its clipping norm


@dataclass(frozen=True)
class Quantize(Transform):
    """Fewer bits per number. Neither kind of rounding proves anything: different inputs can give distinguishable outputs.

    Numbers out of the range are moved to its end. Models are quantised as changes of the received model, styles as mean
    moments over all images.

    Attributes:
        bits: Per number.
        reach: The range is [-reach, reach]; None for a public default: the kind's clipping norm C, or 32 C / sqrt(D) if
            that is less.
        stochastic: Round up or down at random, unbiased; else to the nearest level.
    """

    also_called: ClassVar[tuple[str, ...]] = ("quantization", "qsgd")

    bits: Annotated[int, Field(ge=1, le=16)] = 8
    reach: PositiveFloat | None = None
    stochastic: bool = False

    def changed(self, rows: Tensor, kind: VectorKind, rng: torch.Generator) -> Tensor:
        reach = self.reach or kind.bound(2, None) * min(1.0, _PEAK / max(1, rows.shape[1]) ** 0.5)
        levels = 2**self.bits - 1
        positions = (rows.double().clamp(-reach, reach) + reach) * (levels / (2 * reach))
        offset = torch.rand(positions.shape, generator=rng) if self.stochastic else 0.5
        level = (positions + offset).floor().clamp(0, levels)
        quantised: Tensor = (level * (2 * reach / levels) - reach).to(rows.dtype)
        return quantised

    def guarantee(self) -> Guarantee:
        rounding = "stochastic" if self.stochastic else "deterministic"
        return Guarantee(None, None, f"Quantisation to {self.bits} bits, {rounding}: no finite epsilon.")
