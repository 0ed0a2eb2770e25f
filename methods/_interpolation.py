"""PARDON's interpolation style: the median over clusters of the clients' styles.

Reference: Nguyen et al., "PARDON", Eq. 3-5.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.utils.finch import finch


def interpolation_style(
    styles: Sequence[StyleStatistics], clustering: bool = True, coarsest: bool = False, midpoint: bool = False
) -> InterpolationStyle:
    """Coordinate-wise median of cluster means; every cluster counts once.

    Args:
        styles: At least one, all of the same layer.
        clustering: False takes the mean of all clients' styles.
        coarsest: Use FINCH's coarsest partition instead of the finest.
        midpoint: For an even number of clusters use the mean of the two middle values instead of the lower one.
    """
    if not styles:
        raise ValueError("want the style of at least one client, got none")
    rows = torch.stack([torch.cat([style.mean, style.std]) for style in styles])
    labels = finch(rows)[-1 if coarsest else 0] if clustering else torch.zeros(len(rows), dtype=torch.int64)
    centres = torch.stack([rows[labels == k].double().mean(0) for k in range(int(labels.max()) + 1)])
    mean, std = median(centres, midpoint).to(rows.dtype).chunk(2)
    first = styles[0]
    return InterpolationStyle(client=SERVER, round=first.round, mean=mean, std=std, at=first.at, rule=first.rule)


def median(centres: Tensor, midpoint: bool) -> Tensor:
    """Median (D,) over rows (K, D); for even K the lower of the two middle values, or their mean."""
    return centres.quantile(0.5, dim=0) if midpoint else centres.median(dim=0).values
