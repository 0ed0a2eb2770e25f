"""StableFDG's style-based learning: selective shifting, class-balanced oversampling, exploration, mixing.

Reference: Park et al., "StableFDG", NeurIPS 2023, section 3.1, steps 2-5. Every AdaIN here uses
std = sqrt(biased variance + 1e-6), as Eq. 1 would divide by the zero std of dead channels; that of the released code has
the unbiased variance.

Eq. 5 extrapolates a std below 0 where it is less than alpha / (1 + alpha) of the mean std, and the paper does not clamp it:
AdaIN then turns a channel upside down. In the text, Step 5 mixes the styles of the features after that AdaIN, whose std by
Eq. 1 is the absolute value (`explore`, then `mix`). The released code mixes the extrapolated stds with their signs, and
applies one AdaIN (`explore_and_mix`).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fdgpriv.artifacts.moments import DASSL, PAPER_EPS, Moments, StyleRule, adain


def kmeans_plus_plus(points: Tensor, k: int, rng: torch.Generator) -> Tensor:
    """Indices (k,) of points (B, D) chosen by k-means++ seeding: each with probability ~ squared distance to those chosen.

    If all remaining distances are 0, the next is drawn uniformly from the points not yet chosen.
    """
    if not 0 <= k <= len(points):
        raise ValueError(f"want 0 <= k <= {len(points)} points, got {k}")
    points = points.cpu()
    unchosen = torch.ones(len(points))
    nearest = torch.full((len(points),), torch.inf)
    chosen: list[int] = []
    for _ in range(k):
        weight = unchosen if not chosen else nearest * unchosen
        if not bool((weight > 0).any()):
            weight = unchosen
        index = int(torch.multinomial(weight, 1, generator=rng))
        chosen.append(index)
        unchosen[index] = 0
        nearest = torch.minimum(nearest, (points - points[index]).square().sum(1))
    return torch.tensor(chosen, dtype=torch.int64)


def water_fill(labels: Tensor, size: int, classes: int, rng: torch.Generator) -> Tensor:
    """Indices (size,) of samples to add so that the classes present become as balanced as possible.

    Each addition is a random sample of the currently rarest class (Step 3 and App. G: counts 3, 2, 1 and size 6 give 1, 2,
    3 additions). Ties are broken at random.
    """
    labels = labels.cpu()
    counts = labels.bincount(minlength=classes).float()
    present = counts > 0
    added = torch.zeros(classes, dtype=torch.int64)
    tie = torch.rand(classes, generator=rng) * 0.5
    level = torch.where(present, counts, torch.inf) + tie
    for _ in range(size):
        rarest = int(level.argmin())
        added[rarest] += 1
        level[rarest] += 1
    picks = []
    for label in added.nonzero().flatten().tolist():
        of_class = (labels == label).nonzero().flatten()
        picks.append(of_class[torch.randint(len(of_class), (int(added[label]),), generator=rng)])
    return torch.cat(picks) if picks else torch.empty(0, dtype=torch.int64)


def shift(features: Tensor, kept: Tensor, mean: Tensor, std: Tensor, rule: StyleRule = PAPER_EPS) -> Tensor:
    """Features (B, C, H, W) whose styles are replaced by mean, std (B, C), except at `kept` (k,); Step 2.

    Original and new statistics are detached: gradients pass through the scale only.
    """
    old_mean, old_std = rule(features.detach())
    scale = std.clamp_min(0) / old_std
    shifted = features * scale[..., None, None] + (mean - old_mean * scale)[..., None, None]
    keeps_style = torch.zeros(len(features), dtype=torch.bool, device=features.device)
    keeps_style[kept.to(features.device)] = True
    return torch.where(keeps_style[:, None, None, None], features, shifted)


def explore(
    features: Tensor,
    center: Tensor,
    alpha: float,
    clamp: bool = False,
    on_std: Callable[[Tensor], None] = lambda new_std: None,
) -> Tensor:
    """Features (B, C, H, W) whose styles are extrapolated away from the mean style of `center` (M, C, H, W); Eq. 4-5.

    The new std may be negative for alpha > 0, as in Eq. 5 and the released code; `clamp` sets the minimum to 0.
    `on_std` is called with the new std (B, C) before clamping.
    """
    moments = PAPER_EPS(features)
    return adain(features, *_extrapolated(moments, PAPER_EPS(center), alpha, clamp, on_std), own=moments)


def mix(features: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Features (B, C, H, W) with mixed styles: `weight` (B,) of the own style, the rest `partner`'s (B,); Step 5, MixStyle."""
    moments = PAPER_EPS(features)
    return adain(features, *mixed(moments, partner, weight), own=moments)


def explore_and_mix(
    features: Tensor,
    appended: int,
    center: int,
    alpha: float,
    partner: Tensor,
    weight: Tensor,
    clamp: bool = False,
    on_std: Callable[[Tensor], None] = lambda new_std: None,
) -> Tensor:
    """Features (B, C, H, W) after exploration of the last `appended` rows and mixing of all, by one AdaIN as released.

    Extrapolates around the mean style of the first `center` rows; `alpha`, `partner`, `weight`, `clamp` and `on_std` are as
    in `explore` and `mix`.
    """
    moments = DASSL(features)
    first = len(features) - appended
    new = [moment.detach().clone() for moment in moments]
    if appended:
        center_moments = moments[0][:center], moments[1][:center]
        tail = _extrapolated((moments[0][first:], moments[1][first:]), center_moments, alpha, clamp, on_std)
        new = [torch.cat([old[:first], explored]) for old, explored in zip(new, tail, strict=True)]
    return adain(features, *mixed((new[0], new[1]), partner, weight), own=moments)


def _extrapolated(
    moments: Moments, center: Moments, alpha: float, clamp: bool, on_std: Callable[[Tensor], None]
) -> Moments:
    """Means and stds (B, C), detached, away from the means over rows of `center` (M, C); Eq. 4-5."""
    mean, std = (
        moment.detach() + alpha * (moment.detach() - center_moment.detach().mean(0))
        for moment, center_moment in zip(moments, center, strict=True)
    )
    on_std(std)
    return mean, std.clamp_min(0) if clamp else std


def mixed(moments: Moments, partner: Tensor, weight: Tensor) -> Moments:
    """Means and stds (B, C), detached, of which `weight` (B,) is a row's own, and the rest its partner's (B,); Step 5."""
    mean, std = (moment.detach() for moment in moments)
    own_weight, partner = weight.to(mean)[:, None], partner.to(mean.device)
    return own_weight * mean + (1 - own_weight) * mean[partner], own_weight * std + (1 - own_weight) * std[partner]


def beta(alpha: float, size: int, rng: torch.Generator) -> Tensor:
    """`size` samples (size,) from Beta(alpha, alpha), alpha <= 1, by Johnk's rejection sampling."""
    if not 0 < alpha <= 1:
        raise ValueError(f"want 0 < alpha <= 1, got {alpha}")
    samples = torch.empty(0)
    while len(samples) < size:
        log_u, log_v = torch.rand(2, 4 * size + 16, generator=rng).double().clamp_min(1e-300).log() / alpha
        accepted = torch.logaddexp(log_u, log_v) <= 0
        log_u, log_v = log_u[accepted], log_v[accepted]
        samples = torch.cat([samples, (log_u - torch.logaddexp(log_u, log_v)).exp().float()])
    return samples[:size]
