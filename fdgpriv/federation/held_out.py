"""How many images a client holds out for validation, by the share that is public."""

import torch
from torch import Tensor

SHARE = 0.1


def held_out_split(count: int, share: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of the images that a client with `count` images holds out and trains on, each in random order."""
    validation, training = torch.randperm(count, generator=rng).tensor_split([held_out(count, share)])
    return validation, training


def held_out(count: int, share: float) -> int:
    """Number of images that a client with `count` images holds out: at least 1."""
    return max(1, int(share * count + 1e-9))


def held_out_for(trained_on: int, share: float) -> int:
    """Number of images held out by a client that trains on `trained_on` images; the smaller if two are possible."""
    count = trained_on + 1
    while count - held_out(count, share) < trained_on:
        count += 1
    return count - trained_on
