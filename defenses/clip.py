"""Clipping without noise: bounds the norm of each image's moments, or of each artifact's vector."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import RULES
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.defense import Guarantee, SharedContent
from fdgpriv.privacy.vectors import KINDS, VectorKind, image_moments, images_of
from fdgpriv.utils.fields import PositiveFloat

from ._transform import Transform


@dataclass(frozen=True)
class Clip(Transform):
    """L2 clipping: of each image's moments where a style is an average over images, else of the whole vector.

    Bounds what one image can do to an average. It is deterministic and proves nothing. Clipped styles of images are handed
    on to the next defense, as in ``clip+gaussian``.

    Attributes:
        clip: C of every kind; None for each kind's public default.
    """

    also_called: ClassVar[tuple[str, ...]] = ("clipping",)

    clip: PositiveFloat | None = None

    def protect(
        self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        if isinstance(outgoing, StyleDraft) and RULES[outgoing.rule].clustering is None:
            moments = self.changed(image_moments(outgoing, self.scale), KINDS[StyleStatistics.kind], rng)
            return images_of(moments, outgoing, self.scale)
        return super().protect(outgoing, rng, received)

    def changed(self, rows: Tensor, kind: VectorKind, rng: torch.Generator) -> Tensor:
        return kind.clipped(rows, 2, self.clip)

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None, None, "Clipping bounds the influence of one image. It is deterministic: no finite epsilon."
        )
