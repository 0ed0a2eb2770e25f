"""Simulates clients of membership candidates, and fits Gaussians of a client's style with and without one candidate.

A candidate's style is taken in clients of the observed client's size, since BatchNorm lets it depend on the images that
it shares a batch with. All clients of one round are one pass of the network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sklearn.covariance import ledoit_wolf_shrinkage
from torch import Tensor

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import RULES, over_pixels
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.utils.seeds import generator
from fdgpriv.view import SeenRound

_FINEST = 1e-3  # least standard deviation of a remainder, relative to the candidates'
_SHRUNK = 0.01  # weight of the candidates' variances against their covariance
_LEAST = 1e-6  # least standard deviation of a style


@dataclass(frozen=True, eq=False)
class Moments:
    """Features of a style that are averages over a client's images: moments about the candidates' mean.

    Attributes:
        center, scale: (2C,) mean and standard deviation of mean and std over the candidates; in pooled styles the scale of
            a std is that of its square.
        variances: Whether the variances over images are shared.
        pooled: Whether the std is that of all pixels of all images.
    """

    center: Tensor
    scale: Tensor
    variances: bool
    pooled: bool

    @classmethod
    def of(cls, styles: Tensor, template: StyleStatistics) -> "Moments":
        """About the mean of candidates' mean and std (N, 2C)."""
        rule = RULES[template.rule]
        pooled = rule.pool is over_pixels or rule.clustering is not None
        center = styles.mean(0)
        first = cls(center, torch.ones_like(center), len(template.mean_var) > 0, pooled and not len(template.mean_var))
        scale = first.of_images(styles)[:, : len(center)].std(0).nan_to_num(0).clamp_min(_LEAST)
        return cls(center, scale, first.variances, first.pooled)

    def of_images(self, styles: Tensor) -> Tensor:
        """(..., F): the contributions of images with mean and std (..., 2C)."""
        if self.pooled:
            mean, std = styles.chunk(2, dim=-1)
            away = mean - self.center.chunk(2)[0]
            return torch.cat([away, std.square() + away.square()], dim=-1) / self.scale
        away = (styles - self.center) / self.scale
        return torch.cat([away, away.square()], dim=-1) if self.variances else away

    def of_artifact(self, artifact: Artifact) -> Tensor:
        """(F,): the averages that the artifact tells."""
        assert isinstance(artifact, StyleStatistics)
        return self.of_vectors(artifact.vector())

    def of_vectors(self, vectors: Tensor) -> Tensor:
        """(..., F): the averages that artifacts tell, from all their moments (..., 2C) or (..., 4C)."""
        width = len(self.center)
        features = self.of_images(vectors[..., :width].double())
        if self.variances:
            within = vectors[..., width:].double() / self.scale.square()
            features = torch.cat([features[..., :width], features[..., width:] + within], dim=-1)
        return features


@dataclass(frozen=True, eq=False)
class Replays:
    """One round's styles of simulated clients of candidates.

    Attributes:
        moments: What is read of a style.
        contributions: (N, F) of each candidate, the mean over the simulated clients that have it.
        composed: (M, F) of simulated artifacts, their images' mean contributions.
        remainders: (M, F) of simulated artifacts, defense included: their features less their images' mean contributions.
    """

    moments: Moments
    contributions: Tensor
    composed: Tensor
    remainders: Tensor

    @classmethod
    def of(cls, adversary: Adversary, seen: SeenRound, images: Tensor, n: int, simulations: int) -> "Replays":
        """Simulates at least `simulations` clients of `n` of the candidates (N, 3, H, W) each, each candidate in one."""
        simulator = seen.simulator
        assert isinstance(simulator, StyleSimulator)
        rng, count = generator(adversary.seed, 61, n, seen.number), len(images)
        clients = _clients(count, n, simulations, rng)
        mean, std = simulator.parts_of_clients(images, clients)
        styles = torch.cat([mean, std], dim=2).double()
        moments = Moments.of(styles.flatten(0, 1), simulator.template)
        each = moments.of_images(styles)
        total = each.new_zeros(count, each.shape[2]).index_add_(0, clients.flatten(), each.flatten(0, 1))
        contributions = total / clients.flatten().bincount(minlength=count)[:, None]
        maps = simulator.maps(images)
        shared = [
            moments.of_artifact(simulator.share(simulator.draft(mean[i], std[i], "client", maps[clients[i]]), rng))
            for i in range(min(len(clients), simulations))
        ]
        composed = contributions[clients[: len(shared)]].mean(1)
        return cls(moments, contributions, composed, torch.stack(shared) - composed)


def _clients(count: int, n: int, simulations: int, rng: torch.Generator) -> Tensor:
    """(M, n): indices of the images of simulated clients; all `count` images occur equally often, or almost."""
    passes = max(math.ceil(n / count), round(simulations * n / count), 1)
    order = torch.cat([torch.randperm(count, generator=rng) for _ in range(passes)])
    missing = -len(order) % n
    return torch.cat([order, torch.randperm(max(count, missing), generator=rng)[:missing] % count]).view(-1, n)


class MembershipTest:
    """Likelihood ratio of a style with and without each candidate among its n images.

    With candidate x the features have mean m + (x - m) / n and covariance (n - 1) S / n^2 + T, without it m and S / n + T.
    m and S are those of the candidates, T that of the remainders. With fewer features than candidates the images that
    explain the style together are told from others; S is shrunk towards its diagonal.
    """

    def __init__(self, replays: Sequence[Replays], index: Tensor, n: int) -> None:
        """The test of the candidates at `index` (N,) of the replays of several rounds."""
        self._replays = replays
        styles = torch.cat([replay.contributions[index] for replay in replays], dim=1)
        remainders = torch.cat([replay.remainders for replay in replays], dim=1)
        self._center = styles.mean(0) + remainders.mean(0)
        away, rest = styles - styles.mean(0), remainders - remainders.mean(0)
        spread = away.square().mean(0)
        noise = torch.maximum(rest.square().mean(0), _FINEST**2 * spread).clamp_min(_LEAST**2)
        shrinkage = max(float(ledoit_wolf_shrinkage((rest / noise.sqrt()).numpy(), assume_centered=True)), _SHRUNK)
        diagonal = shrinkage * noise + _SHRUNK * spread / n
        self._unit = diagonal.sqrt()
        away, rest = away / self._unit, rest / self._unit * math.sqrt((1 - shrinkage) / len(rest))
        self._shift = away / n
        inside, outside = (
            torch.cat([math.sqrt(weight / len(away)) * away, rest]) for weight in ((n - 1) / n**2, 1 / n)
        )
        self._inside, self._outside = _Gaussian(inside), _Gaussian(outside)

    def log_ratio(self, artifacts: Sequence[Artifact]) -> Tensor:
        """(N,): of the candidates, for one artifact of each round."""
        features = [replay.moments.of_artifact(one) for replay, one in zip(self._replays, artifacts, strict=True)]
        away = (torch.cat(features) - self._center) / self._unit
        return (self._inside.log_density(away - self._shift) - self._outside.log_density(away[None])).float()


class _Gaussian:
    """The normal distribution of mean 0 and covariance I + rows^T rows of rows (Q, F)."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._root = torch.linalg.cholesky(torch.eye(len(rows), dtype=rows.dtype) + rows @ rows.T)
        self._log_determinant = 2 * float(self._root.diagonal().log().sum())

    def log_density(self, rest: Tensor) -> Tensor:
        """(N,): log-densities of differences (N, F), up to a constant that depends on F alone."""
        along = torch.linalg.solve_triangular(self._root, self._rows @ rest.T, upper=False)
        distance: Tensor = rest.square().sum(1) - along.square().sum(0)
        return -(distance + self._log_determinant) / 2
