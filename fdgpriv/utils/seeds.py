"""Derives independent random generators from tuples of integers."""

import torch


def generator(*seed: int) -> torch.Generator:
    """A new generator, seeded by a hash of the numbers, so that different tuples give independent streams."""
    folded = 0
    for part in seed:
        folded = (folded * 1_000_003 + part + 1) % (2**63 - 1)
    return torch.Generator().manual_seed(folded)
