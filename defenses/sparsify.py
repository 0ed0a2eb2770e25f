"""Sparsification: only the entries of largest magnitude of a shared vector are kept, the others are 0.

Reference: Aji and Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.defense import Guarantee
from fdgpriv.privacy.vectors import VectorKind
from fdgpriv.utils.fields import PositiveFraction

from ._transform import Transform


@dataclass(frozen=True)
class Sparsify(Transform):
    """Shares the largest entries. Which entries these are depends on the data, so it proves nothing.

    Of models the largest changes from the received model are kept; other entries stay as received. Of styles the entries of
    the mean moments are kept.

    Attributes:
        share: Share of the entries that are kept, at least one entry.
    """

    also_called: ClassVar[tuple[str, ...]] = ("topk", "compression", "pruning")

    share: PositiveFraction = 0.1

    def changed(self, rows: Tensor, kind: VectorKind, rng: torch.Generator) -> Tensor:
        if rows.shape[1] == 0:
            return rows
        largest = rows.abs().topk(max(1, round(self.share * rows.shape[1])), dim=1).indices
        return torch.zeros_like(rows).scatter(1, largest, rows.gather(1, largest))

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            f"Sparsification to {self.share:.3g} of the entries is deterministic: no finite epsilon.",
        )
