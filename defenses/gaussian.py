"""The Gaussian mechanism on style statistics: clip each image's moments, noise their mean, rebuild the style.

Reference: Balle and Wang, "Improving the Gaussian mechanism", ICML 2018 (exact calibration).
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import RULES, StyleRule, over_pixels
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.defense import Defense, Guarantee, Sharing
from fdgpriv.privacy.accounting import noise_multiplier
from fdgpriv.privacy.sensitivity import mean_replace_one, whole_vector
from fdgpriv.utils.fields import OpenFraction, PositiveFloat, PositiveInt

_N = 20  # images in the worlds that epsilon is measured on; the bound is the same for every n


@dataclass(frozen=True)
class Gaussian(Defense):
    """(epsilon, delta)-differential privacy of one client's style statistics over a whole run, and of nothing else.

    An image's moments are v = (mean, std, mean^2 / scale, std^2 / scale), of which the last two stand only where
    variances are shared. Where the std is taken over all pixels of all images (CCST), which has no sensitivity of C / n,
    v = (mean, (mean^2 + std^2) / scale), and that std is read off the noised second moment. v is clipped to norm `clip`;
    the mean over images gets N(0, (z Delta)^2) noise on each entry; the style is read off the noised moments
    (post-processing). z is calibrated exactly so that all releases of the run together cost epsilon. Delta is 2 clip / n
    for the unit ``image`` (replace one image, n public), 2 clip for the unit ``client`` (replace all of a client's
    images; also where only the finished style is at hand). Of images that are clustered first (PARDON) only the unit
    ``client`` is bounded: their finished style is clipped.

    What it does not protect: model states, sample counts, anything but style statistics.

    Attributes:
        epsilon, delta: The budget of the whole run.
        clip: C, in units of the moments; public, not taken from data.
        scale: Public divisor of the squared moments.
        unit: What one neighbour may change, image or client.
        releases: How often the style is sent; set by `bound_to`.
    """

    epsilon: PositiveFloat = 4.0
    delta: OpenFraction = 1e-5
    clip: PositiveFloat = 4.0
    scale: PositiveFloat = 2.0
    unit: Literal["image", "client"] = "image"
    releases: PositiveInt = 1

    def bound_to(self, sharing: Sharing) -> Self:
        if self.unit == "client" and sharing.per_image(StyleStatistics.kind):
            raise ValueError(
                f"gaussian.unit: want image where {sharing.method} shares styles of single images, as many as a client's "
                "size makes it; got 'client', whose budget they would overrun"
            )
        self._want_bounded(sharing.style_rule, sharing.method)
        return replace(self, releases=max(1, sharing.releases(StyleStatistics.kind)))

    @property
    def multiplier(self) -> float:
        """z: noise std over sensitivity."""
        return noise_multiplier(self.epsilon, self.delta, self.releases)

    def protect(self, outgoing: Artifact | StyleDraft, rng: torch.Generator) -> Artifact:
        if isinstance(outgoing, StyleDraft) and RULES[outgoing.rule].clustering is not None:
            self._want_bounded(RULES[outgoing.rule], outgoing.rule)
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

    def moments(self, mean: Tensor, std: Tensor, variances: bool) -> Tensor:
        """What is clipped and averaged: (n, 2C) or (n, 4C), of styles (n, C)."""
        parts = [mean, std]
        if variances:
            parts += [mean.square() / self.scale, std.square() / self.scale]
        return torch.cat(parts, dim=1)

    def sensitivity(self, n: int) -> float:
        """How far the released mean can move between neighbours."""
        return mean_replace_one(self.clip, n) if self.unit == "image" else whole_vector(self.clip)

    def center(self, moments: Tensor) -> Tensor:
        """The noiseless release (D,): the mean of clipped moments (n, D), clipped as a whole for the unit client."""
        if self.unit == "client":
            return _clipped(moments.mean(0, keepdim=True), self.clip)[0]
        return _clipped(moments, self.clip).mean(0)

    def release(self, moments: Tensor, draws: int, rng: torch.Generator) -> Tensor:
        """`draws` independent releases (draws, D) of moments (n, D)."""
        std = self.multiplier * self.sensitivity(len(moments))
        center = self.center(moments)
        return center + std * torch.randn(draws, len(center), generator=rng)

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """One of `_N` images (or all, for the unit client) lies at the clip on one side of 0, or on the other.

        The score is the inner product of the run's summed releases with the noiseless difference of the worlds.
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

    def _want_bounded(self, rule: StyleRule | None, name: str) -> None:
        """Refuse the unit image where one image can move a client's style by more than 2 clip / n."""
        if self.unit == "image" and rule is not None and rule.clustering is not None:
            raise ValueError(
                f"gaussian.unit: want client for {name}, whose clustered styles one image can move far; got image"
            )

    def _rebuild(self, released: Tensor, variances: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if not variances:
            mean, std = released.chunk(2)
            nothing = mean.new_empty(0)
            return mean, std.clamp_min(0), nothing, nothing
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
    """Whether the rule's std is that of all pixels of all images."""
    return RULES[rule].pool is over_pixels and RULES[rule].clustering is None


def _clipped(moments: Tensor, norm: float) -> Tensor:
    """Rows (n, D) shortened to at most `norm`."""
    length = moments.norm(dim=1, keepdim=True).clamp_min(1e-12)
    clipped: Tensor = moments * (norm / length).clamp_max(1)
    return clipped
