"""Scores of pairs of artifacts of two rounds: how likely both are of one client."""

import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor

_FAR = 3.0  # largest standardised value
_RIDGE = 0.1  # times the mean variance of an axis, added to every variance


def learned_links_more(now: Tensor, before: Tensor) -> bool:
    """Whether the learned score links more of the second half of simulated clients than the other, fitted on the first."""
    half = len(now) // 2
    place = torch.arange(len(now) - half)
    learned = likelihood_ratio(now[half:], before[half:], now[:half], before[:half])
    plain = likeness(now[half:], before[half:])
    hits = [int((scores.argmax(1) == place).sum()) for scores in (learned, plain)]
    return hits[0] > hits[1]


def likelihood_ratio(now: Tensor, before: Tensor, seen_now: Tensor, seen_before: Tensor) -> Tensor:
    """Log likelihood ratios (M, N) of "of one client" to "of two", up to a constant.

    Args:
        now, before: Artifacts (M, D) and (N, D) of two rounds.
        seen_now, seen_before: Pairs (S, D) of simulated clients, to whose mean and covariance a Gaussian is fitted.
    """
    dim = now.shape[1]
    spread_now, spread_before = (rows.std(0) + 1e-6 * rows.std() + 1e-12 for rows in (seen_now, seen_before))
    ours = ((now - seen_now.mean(0)) / spread_now).clamp(-_FAR, _FAR).double()
    theirs = ((before - seen_before.mean(0)) / spread_before).clamp(-_FAR, _FAR).double()
    pairs = torch.cat(
        [(seen_now - seen_now.mean(0)) / spread_now, (seen_before - seen_before.mean(0)) / spread_before], 1
    )
    covariance = torch.from_numpy(LedoitWolf(assume_centered=True).fit(pairs.double().numpy()).covariance_)
    joint = torch.linalg.inv(covariance)
    own = joint[:dim, :dim] - torch.linalg.inv(covariance[:dim, :dim])
    other = joint[dim:, dim:] - torch.linalg.inv(covariance[dim:, dim:])
    quadratic = ((ours @ own) * ours).sum(1)[:, None] + ((theirs @ other) * theirs).sum(1)
    ratio: Tensor = (-0.5 * quadratic - ours @ joint[:dim, dim:] @ theirs.T).float()
    return ratio


def likeness(now: Tensor, before: Tensor) -> Tensor:
    """Cosines (M, N) of the artifacts (M, D) of one round with those (N, D) of another, standardised and whitened."""
    ours, theirs = standard(now), standard(before)
    axes = torch.linalg.svd(theirs - theirs.mean(0), full_matrices=False)
    variance = axes.S.square() / len(theirs)
    white = axes.Vh.T / (variance + _RIDGE * variance.mean()).sqrt()
    ours, theirs = (torch.nn.functional.normalize(rows @ white, dim=1) for rows in (ours, theirs))
    return ours @ theirs.T


def standard(rows: Tensor) -> Tensor:
    """Rows (M, D) about their median, in units of the median absolute deviation, clipped to _FAR to limit outliers."""
    center = rows.median(0).values
    spread = (rows - center).abs().median(0).values
    return ((rows - center) / (spread + 1e-2 * spread.mean() + 1e-12)).clamp(-_FAR, _FAR)
