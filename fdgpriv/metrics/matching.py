"""Assigns reconstructions to true images by the Hungarian method, once for all metrics."""

from typing import NamedTuple

import torch
from torch import Tensor

from fdgpriv.metrics.score import check_images


class Matching(NamedTuple):
    """Pairs of indices; each index occurs at most once.

    Attributes:
        images: (P,) int64 indices of reconstructions, ascending.
        truth: (P,) int64 indices of the assigned true images.
    """

    images: Tensor
    truth: Tensor


def squared_errors(images: Tensor, truth: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Mean squared error (N, M) of every image (N, 3, H, W) against every true image (M, 3, H, W), computed in `dtype`."""
    check_images(images)
    check_images(truth)
    if images.shape[1:] != truth.shape[1:]:
        raise ValueError(f"want images of one size, got {tuple(images.shape[1:])} and {tuple(truth.shape[1:])}")
    flat_images, flat_truth = images.flatten(1).to(dtype), truth.flatten(1).to(dtype)
    cross = flat_images @ flat_truth.T
    squares = flat_images.square().sum(1)[:, None] + flat_truth.square().sum(1)[None, :] - 2 * cross
    return squares.clamp_min(0) / flat_images.shape[1]


def pairs(images: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """The images and their assigned true images, (P, 3, H, W) each; images beyond the number of true ones are ignored."""
    candidates = images[: len(truth)]
    matching = hungarian(candidates, truth)
    return candidates[matching.images], truth[matching.truth]


def first_match(images: Tensor, truth: Tensor) -> Tensor:
    """The image (3, H, W) assigned to the first true image, after both sides are cut to the same number."""
    count = min(len(images), len(truth))
    matching = hungarian(images[:count], truth[:count])
    return images[matching.images[matching.truth == 0]][0]


def hungarian(images: Tensor, truth: Tensor) -> Matching:
    """The assignment with the least total squared error; surplus images of the larger side stay unassigned.

    Args:
        images: Reconstructions (N, 3, H, W) in [0, 1], in no order.
        truth: True images (M, 3, H, W) in [0, 1].

    Returns: min(N, M) pairs. Matching improves the score of unrelated images too, so controls are matched as well.
    Reference: Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics 1955.
    """
    from scipy.optimize import linear_sum_assignment  # a fifth of a second, and trainings match no images

    errors = squared_errors(images, truth)
    if not errors.isfinite().all():
        raise ValueError("want finite images to match, got NaN or infinity")
    if errors.numel() == 1:  # nothing to assign
        return Matching(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    rows, columns = linear_sum_assignment(errors.cpu().numpy())
    return Matching(torch.as_tensor(rows), torch.as_tensor(columns))
