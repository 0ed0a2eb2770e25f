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
    left = torch.ones(len(points))
    nearest = torch.full((len(points),), torch.inf)
    chosen: list[int] = []
    for _ in range(k):
        weight = left if not chosen else nearest * left
        if not bool((weight > 0).any()):
            weight = left
        pick = int(torch.multinomial(weight, 1, generator=rng))
        chosen.append(pick)
        left[pick] = 0
        nearest = torch.minimum(nearest, (points - points[pick]).square().sum(1))
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
        own = (labels == label).nonzero().flatten()
        picks.append(own[torch.randint(len(own), (int(added[label]),), generator=rng)])
    return torch.cat(picks) if picks else torch.empty(0, dtype=torch.int64)


def shift(features: Tensor, kept: Tensor, mean: Tensor, std: Tensor, rule: StyleRule = PAPER_EPS) -> Tensor:
    """Features (B, C, H, W) whose styles are replaced by mean, std (B, C), except at `kept` (k,); Step 2.

    Original and new statistics are detached: gradients pass through the scale only.
    """
    own_mean, own_std = rule(features.detach())
    scale = std.clamp_min(0) / own_std
    moved = features * scale[..., None, None] + (mean - own_mean * scale)[..., None, None]
    stays = torch.zeros(len(features), dtype=torch.bool, device=features.device)
    stays[kept.to(features.device)] = True
    return torch.where(stays[:, None, None, None], features, moved)


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
    own = PAPER_EPS(features)
    return adain(features, *_extrapolated(own, PAPER_EPS(center), alpha, clamp, on_std), own=own)


def mix(features: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Features (B, C, H, W) with mixed styles: `weight` (B,) of the own style, the rest `partner`'s (B,); Step 5, MixStyle."""
    own = PAPER_EPS(features)
    return adain(features, *_mixed(own, partner, weight), own=own)


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
    own = DASSL(features)
    first = len(features) - appended
    new = [moment.detach().clone() for moment in own]
    if appended:
        around = own[0][:center], own[1][:center]
        tail = _extrapolated((own[0][first:], own[1][first:]), around, alpha, clamp, on_std)
        new = [torch.cat([kept[:first], explored]) for kept, explored in zip(new, tail, strict=True)]
    return adain(features, *_mixed((new[0], new[1]), partner, weight), own=own)


def _extrapolated(
    own: Moments, center: Moments, alpha: float, clamp: bool, on_std: Callable[[Tensor], None]
) -> Moments:
    """Means and stds (B, C), detached, away from the means over rows of `center` (M, C); Eq. 4-5."""
    mean, std = (at.detach() + alpha * (at.detach() - of.detach().mean(0)) for at, of in zip(own, center, strict=True))
    on_std(std)
    return mean, std.clamp_min(0) if clamp else std


def _mixed(style: Moments, partner: Tensor, weight: Tensor) -> Moments:
    """Means and stds (B, C), detached, of which `weight` (B,) is a row's own, and the rest its partner's (B,); Step 5."""
    mean, std = (moment.detach() for moment in style)
    own, partner = weight.to(mean)[:, None], partner.to(mean.device)
    return own * mean + (1 - own) * mean[partner], own * std + (1 - own) * std[partner]


def beta(alpha: float, size: int, rng: torch.Generator) -> Tensor:
    """`size` samples (size,) from Beta(alpha, alpha), alpha <= 1, by Johnk's rejection sampling."""
    if not 0 < alpha <= 1:
        raise ValueError(f"want 0 < alpha <= 1, got {alpha}")
    drawn = torch.empty(0)
    while len(drawn) < size:
        log_u, log_v = torch.rand(2, 4 * size + 16, generator=rng).double().clamp_min(1e-300).log() / alpha
        accepted = torch.logaddexp(log_u, log_v) <= 0
        log_u, log_v = log_u[accepted], log_v[accepted]
        drawn = torch.cat([drawn, (log_u - torch.logaddexp(log_u, log_v)).exp().float()])
    return drawn[:size]
