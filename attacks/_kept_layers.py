"""Label shares from last layers that clients keep over rounds, by how far these have come apart.

A class that a client has often has a larger bias and longer weights in its last layer, and the more so the more rounds the
client has trained it. Both deviate from the other clients' by the client's shares, with errors of their own: how well they
agree tells how far to trust them, without a simulated training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class LayerDeviations:
    """How the last layers of one round deviate from the other clients' mean.

    Attributes:
        observed: (K,) of the observed client, with the other clients' spread as the unit; shortened to the longest of theirs.
        reliability: The share, in [0, 1], of the variance of these deviations that is due to labels (Cronbach's alpha).
    """

    observed: Tensor
    reliability: float

    @classmethod
    def of(
        cls, layer: Sequence[Tensor], others: Sequence[Sequence[Tensor]], growth: Sequence[Tensor] = ()
    ) -> Self | None:
        """The deviations; None if there are not two measurements that can agree.

        Args:
            layer: The observed client's tensors of the layer, weights (K, ...) or biases (K,).
            others: Those of each other client.
            growth: (K,) of the observed client and of each other one, in the order of `others`: how a bias grew while all
                still had the same layer. A further measurement.
        """
        rows = torch.stack([_measured(tensors) for tensors in (layer, *others)])
        if growth:
            rows = torch.cat([rows, torch.stack(list(growth))[:, None]], dim=1)
        rows = rows - rows[1:].mean(0)
        rows = rows / rows[1:].square().mean((0, 2), keepdim=True).sqrt().clamp_min(_TINY)
        count = rows.shape[1]
        if count < 2:
            return None
        agreement = torch.corrcoef(rows[1:].transpose(0, 1).flatten(1))
        mean_agreement = float(agreement.sum() - count) / (count * (count - 1))
        reliability = count * mean_agreement / (1 + (count - 1) * mean_agreement) if mean_agreement > 0 else 0.0
        sums = rows.sum(1)
        sums = sums / sums[1:].square().mean().sqrt().clamp_min(_TINY)
        longest = float(sums[1:].norm(dim=1).max())
        return cls(sums[0] * min(1.0, longest / max(_TINY, float(sums[0].norm()))), reliability)

    def shares(self, mean: Tensor, n_images: int) -> Tensor:
        """(K,): `mean` shares moved by the deviations, as far as clients of so many random images differ in their shares."""
        spread = (mean * (1 - mean)).clamp_min(0).mean().div(n_images).sqrt()
        shares: Tensor = mean + self.reliability**0.5 * spread * self.observed
        return shares


def _measured(layer: Sequence[Tensor]) -> Tensor:
    """(I, K): by class, each bias, and the length of each weight."""
    return torch.stack(
        [tensor.float() if tensor.ndim == 1 else tensor.float().flatten(1).norm(dim=1) for tensor in layer]
    )
