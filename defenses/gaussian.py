"""Gaussian mechanism on style statistics: clips per-image moments, adds noise to their mean, and recomputes the style.

Reference: Balle and Wang, "Improving the Gaussian mechanism", ICML 2018 (exact calibration).
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import RULES, StyleRule, over_pixels
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import InterpolationStyle, StyleDraft, StyleStatistics
from fdgpriv.defense import Defense, Guarantee, Outgoing
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.privacy.accounting import noise_multiplier
from fdgpriv.privacy.sensitivity import mean_replace_one, whole_vector
from fdgpriv.utils.fields import OpenFraction, PositiveFloat, PositiveInt

_N = 20  # images per neighbouring dataset for measuring epsilon; the bound is the same for every n


@dataclass(frozen=True)
class Gaussian(Defense):
    """(epsilon, delta)-differential privacy of one client's style statistics over a whole run.

    An image's moments are v = (mean, std, mean^2 / scale, std^2 / scale), the last two only if variances are shared. If
    the std is over all pixels of all images (CCST), its sensitivity is not O(1 / n); then v = (mean, (mean^2 + std^2) /
    scale), and the std is computed from the noised second moment. v is clipped to norm `clip`, N(0, (z Delta)^2) noise is
    added to each entry of the mean over images, and the style is computed from the noised moments (post-processing). z is
    calibrated exactly so that all releases of the run together cost epsilon. The sensitivity Delta is 2 clip / n for the
    unit ``image`` (replace one image, n public), and 2 clip for the unit ``client`` (replace all of a client's images;
    also if only the final style is available). If images are clustered first (PARDON), only the unit ``client`` is
    supported: the final style is clipped.

    Model states, sample counts and all other artifacts are not protected.

    Attributes:
        epsilon, delta: The budget of the whole run.
        clip: C, in units of the moments; public, not computed from data.
        scale: Public divisor of the squared moments.
        unit: What neighbouring datasets differ in: one image, or all images of a client.
        releases: Number of releases of the style in a run; set by `bound_to`.
    """

    epsilon: PositiveFloat = 4.0
    delta: OpenFraction = 1e-5
    clip: PositiveFloat = 4.0
    scale: PositiveFloat = 2.0
    unit: Literal["image", "client"] = "image"
    releases: PositiveInt = 1

    def bound_to(self, sharing: Disclosure) -> Self:
        if self.unit == "client" and sharing.per_image(StyleStatistics.kind):
            raise ValueError(
                f"gaussian.unit: want image where {sharing.method} shares styles of single images, as many as a client's "
                "size makes it; got 'client', whose budget they would overrun"
            )
        self._check_bounded(sharing.style_rule, sharing.method)
        return replace(self, releases=max(1, sharing.releases(StyleStatistics.kind)))

    @property
    def multiplier(self) -> float:
        """z: noise std over sensitivity."""
        return noise_multiplier(self.epsilon, self.delta, self.releases)

    def protect(
        self, outgoing: Outgoing, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        if isinstance(outgoing, StyleDraft) and RULES[outgoing.rule].clustering is not None:
            self._check_bounded(RULES[outgoing.rule], outgoing.rule)
            outgoing = outgoing.finish()
        if isinstance(outgoing, StyleDraft) and _over_pixels(outgoing.rule):
            mean, second = outgoing.mean, outgoing.mean.square() + outgoing.std.square()
            (released,) = self.release(torch.cat([mean, second / self.scale], dim=1), 1, rng)
            mean, second = released.chunk(2)
            std = (self.scale * second - mean.square()).clamp_min(0).sqrt()
            return replace(outgoing, variances=False).pooled(mean, std, mean, mean)
        if isinstance(outgoing, StyleDraft):
            moments = self.moments(outgoing.mean, outgoing.std, outgoing.variances)
            (released,) = self.release(moments, 1, rng)
            return outgoing.pooled(*self._rebuild(released, outgoing.variances))
        if isinstance(outgoing, StyleStatistics):
            variances = len(outgoing.mean_var) > 0
            moments = self._moments_of(outgoing, variances)
            client_level = replace(self, unit="client")
            (released,) = client_level.release(moments[None], 1, rng)
            mean, std, mean_var, std_var = client_level._rebuild(released, variances)
            return replace(outgoing, mean=mean, std=std, mean_var=mean_var, std_var=std_var)
        return outgoing

    def alters(self, kind: str) -> bool:
        return kind in (StyleStatistics.kind, InterpolationStyle.kind)

    def moments(self, mean: Tensor, std: Tensor, variances: bool) -> Tensor:
        """Per-image moments before clipping: (n, 2C) or (n, 4C), from styles (n, C)."""
        parts = [mean, std]
        if variances:
            parts += [mean.square() / self.scale, std.square() / self.scale]
        return torch.cat(parts, dim=1)

    def sensitivity(self, n: int) -> float:
        """L2 sensitivity of the released mean."""
        return mean_replace_one(self.clip, n) if self.unit == "image" else whole_vector(self.clip)

    def center(self, moments: Tensor) -> Tensor:
        """The noiseless release (D,): mean of clipped moments (n, D), or clipped mean for the unit ``client``."""
        if self.unit == "client":
            return _clipped(moments.mean(0, keepdim=True), self.clip)[0]
        return _clipped(moments, self.clip).mean(0)

    def release(self, moments: Tensor, draws: int, rng: torch.Generator) -> Tensor:
        """`draws` independent releases (draws, D) of moments (n, D)."""
        std = self.multiplier * self.sensitivity(len(moments))
        center = self.center(moments)
        return center + std * torch.randn(draws, len(center), generator=rng)

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Scores (draws,) of two neighbouring datasets, for an empirical lower bound on epsilon.

        One of `_N` images (or all, for the unit ``client``) is at +clip or at -clip along one direction. The score is the
        inner product of the run's summed releases with the noiseless difference of the datasets.
        """
        direction = torch.ones(dim) / dim**0.5
        worlds = []
        for sign in (1, -1):
            moments = torch.zeros(_N, dim)
            moments[: _N if self.unit == "client" else 1] = 2 * sign * self.clip * direction
            worlds.append(moments)
        difference = self.center(worlds[0]) - self.center(worlds[1])
        scores = [
            (self.release(moments, draws * self.releases, rng) @ difference).view(draws, self.releases).sum(1)
            for moments in worlds
        ]
        return scores[0], scores[1]

    def guarantee(self) -> Guarantee:
        neighbour = (
            "one of a client's n images is replaced (n public)"
            if self.unit == "image"
            else "all of a client's images are replaced"
        )
        return Guarantee(
            self.epsilon,
            self.delta,
            f"({self.epsilon:g}, {self.delta:g})-DP of one client's style statistics over {self.releases} releases, where "
            f"{neighbour}: Gaussian noise of multiplier {self.multiplier:.3g}, clip {self.clip:g}. Covers style statistics "
            "only: the model states of the same run carry no finite epsilon.",
            (StyleStatistics.kind,),
        )

    def _check_bounded(self, rule: StyleRule | None, name: str) -> None:
        """Raises ValueError for the unit ``image`` with clustering, whose sensitivity exceeds 2 clip / n."""
        if self.unit == "image" and rule is not None and rule.clustering is not None:
            raise ValueError(
                f"gaussian.unit: want client for {name}, whose clustered styles one image can move far; got image"
            )

    def _rebuild(self, released: Tensor, variances: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if not variances:
            mean, std = released.chunk(2)
            empty = mean.new_empty(0)
            return mean, std.clamp_min(0), empty, empty
        mean, std, mean_square, std_square = released.chunk(4)
        std = std.clamp_min(0)
        mean_var = (self.scale * mean_square - mean.square()).clamp_min(0)
        std_var = (self.scale * std_square - std.square()).clamp_min(0)
        return mean, std, mean_var, std_var

    def _moments_of(self, style: StyleStatistics, variances: bool) -> Tensor:
        parts = [style.mean, style.std]
        if variances:
            parts += [
                (style.mean.square() + style.mean_var) / self.scale,
                (style.std.square() + style.std_var) / self.scale,
            ]
        return torch.cat(parts)


def _over_pixels(rule: str) -> bool:
    """Whether the rule's std is over all pixels of all images."""
    return RULES[rule].pool is over_pixels and RULES[rule].clustering is None


def _clipped(moments: Tensor, norm: float) -> Tensor:
    """Rows (n, D) clipped to L2 norm at most `norm`."""
    length = moments.norm(dim=1, keepdim=True).clamp_min(1e-12)
    clipped: Tensor = moments * (norm / length).clamp_max(1)
    return clipped
