"""GradAlign: clients whose gradient agrees with the average weigh more (Bartholet et al., 2024, Alg. 3)."""

import torch
from torch import Tensor

SIGNS = {"towards": 1.0, "away": -1.0}


def cosines(gram: Tensor) -> Tensor:
    """Cosine (M,) in [-1, 1] of each gradient with the mean of all; 0 where either is 0.

    Args:
        gram: Inner products (M, M) of the gradients.
    """
    with_mean, squared = gram.mean(1), gram.diagonal()
    norms = (squared.clamp_min(0) * with_mean.mean().clamp_min(0)).sqrt()
    return torch.where(norms > 0, with_mean / torch.where(norms > 0, norms, 1.0), 0.0)


def weights(gram: Tensor, align: str) -> Tensor:
    """Weights (M,) of sum 1: the softmax of the cosines (``towards``), of their negatives (``away``), or equal (``off``)."""
    if align == "off":
        return gram.new_full((len(gram),), 1 / len(gram))
    return torch.softmax(SIGNS[align] * cosines(gram), dim=0)
