"""Random generators from several numbers that name a stream."""

import torch


def generator(*seed: int) -> torch.Generator:
    """A fresh generator; several numbers are folded into one seed, so that streams with different names do not meet."""
    folded = 0
    for part in seed:
        folded = (folded * 1_000_003 + part + 1) % (2**63 - 1)
    return torch.Generator().manual_seed(folded)
