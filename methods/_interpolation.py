"""PARDON's interpolation style: clients' styles are clustered, and the clusters' median is the one style of all.

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
    """The coordinate-wise median of cluster means, each cluster counting once.

    Args:
        styles: At least one, of one layer.
        clustering: Off takes the plain mean of all clients' styles.
        coarsest: Take the coarsest of FINCH's partitions, not the finest.
        midpoint: Of evenly many clusters take the middle of the two middle values, not the lower one.
    """
    rows = torch.stack([torch.cat([style.mean, style.std]) for style in styles])
    labels = finch(rows)[-1 if coarsest else 0] if clustering else torch.zeros(len(rows), dtype=torch.int64)
    centres = torch.stack([rows[labels == k].double().mean(0) for k in range(int(labels.max()) + 1)])
    mean, std = middle(centres, midpoint).to(rows.dtype).chunk(2)
    first = styles[0]
    return InterpolationStyle(client=SERVER, round=first.round, mean=mean, std=std, at=first.at, rule=first.rule)


def middle(centres: Tensor, midpoint: bool) -> Tensor:
    """The median (D,) over rows (K, D), for even K the lower middle value or the midpoint of the two."""
    return centres.quantile(0.5, dim=0) if midpoint else centres.median(dim=0).values
