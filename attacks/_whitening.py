"""Covariances of styles from few samples, shrunk, and what they make of a difference (Ledoit and Wolf 2004)."""

import math

import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor

_FINEST = 1e-6  # least variance in any direction, in units of the styles' own


def shrunk(rest: Tensor, spread: Tensor) -> Tensor:
    """(D, D): the covariance of remainders (M, D), whose mean is 0, in units of variances `spread` (D,)."""
    model = LedoitWolf().fit((rest / spread.sqrt()).double().numpy())
    covariance: Tensor = torch.from_numpy(model.covariance_)
    return covariance


def whitener(covariance: Tensor, spread: Tensor) -> Tensor:
    """(D, D) root of the inverse of such a covariance, for differences in their own units.

    Never finer than a thousandth of a style's spread.
    """
    values, vectors = torch.linalg.eigh(covariance + _FINEST * torch.eye(len(spread), dtype=torch.float64))
    root: Tensor = ((vectors / values.clamp_min(_FINEST).sqrt()) / spread.sqrt()[:, None].double()).float()
    return root


class CentredGaussian:
    """The normal distribution of mean 0 with this covariance (D, D), in units of variances `spread` (D,)."""

    def __init__(self, covariance: Tensor, spread: Tensor) -> None:
        self.root = whitener(covariance, spread).double()
        self.constant = float(torch.linalg.slogdet(self.root).logabsdet) - len(spread) / 2 * math.log(2 * math.pi)

    def log_density(self, rest: Tensor) -> Tensor:
        """(...) of differences (..., D)."""
        return self.constant - (rest.double() @ self.root).square().sum(-1) / 2
