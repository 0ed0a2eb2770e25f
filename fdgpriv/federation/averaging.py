"""Weighted mean of clients' model states."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def average(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Weighted mean of model states, buffers included; integer counters are averaged and rounded down.

    Args:
        states: At least one, all of one architecture.
        weights: Non-negative, with any positive sum; None for equal weights.
    """
    client_weights = [1.0] * len(states) if weights is None else list(weights)
    total = sum(client_weights)
    if not states or total <= 0:
        raise ValueError(f"want at least one model state and a positive sum of weights, got {len(states)}, {total}")
    mean = {}
    for name, first in states[0].items():
        wide = torch.float32 if first.is_floating_point() else torch.float64
        weighted_sum = torch.zeros(first.shape, dtype=wide)
        for state, weight in zip(states, client_weights, strict=True):
            weighted_sum.add_(state[name], alpha=weight / total)
        mean[name] = (
            weighted_sum.to(first.dtype) if first.is_floating_point() else (weighted_sum + 1e-6).floor().to(first.dtype)
        )
    return mean
