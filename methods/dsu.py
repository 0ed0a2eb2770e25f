"""DSU: clients draw the styles of features anew, around their own (Li et al., ICLR 2022)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.moments import PAPER_EPS, adain

from ._style_augmentation import StyleAugmentation

_EPS = 1e-6  # added to variances over images, as in the released code


@dataclass(frozen=True)
class DSU(StyleAugmentation):
    """FedAvg, in whose local training each channel's mean and standard deviation are drawn from a normal distribution.

    Its mean is the image's own statistic, its variance that of the statistic over the mini-batch, divided by B as in the
    paper (by B - 1 in the released code). A drawn standard deviation may be negative, as in the paper. The released code
    changes features after the first convolution as well, which lies within our first stage.
    """

    def changed(self, features: Tensor, rng: torch.Generator) -> Tensor:
        mean, std = PAPER_EPS(features)
        return adain(features, _drawn(mean, rng), _drawn(std, rng), own=(mean, std))


def _drawn(statistic: Tensor, rng: torch.Generator) -> Tensor:
    """Draws (B, C) around the statistic (B, C), with its variance over the batch."""
    spread = (statistic.var(0, unbiased=False) + _EPS).sqrt()
    return statistic + torch.randn(statistic.shape, generator=rng).to(statistic) * spread
