"""Simulates clients that hold membership candidates, and fits Gaussians of a client's style with and without a candidate.

A candidate's style is computed within clients of the observed client's size, since under BatchNorm it depends on the other
images of its batch. All clients of a round are computed in a single pass of the network.
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

_MIN_RELATIVE_NOISE = 1e-3  # standard deviation of a remainder, relative to the candidates'
_MIN_SHRINKAGE = 0.01  # weight of variances in a covariance shrunk to its diagonal
_MIN_DEVIATION = 1e-6  # of a style's component


@dataclass(frozen=True, eq=False)
class StyleMoments:
    """Computes features of a style that are averages over a client's images: moments about the candidates' mean.

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
    def of(cls, styles: Tensor, template: StyleStatistics) -> "StyleMoments":
        """Moments about the mean of the candidates' styles, mean and std (N, 2C)."""
        rule = RULES[template.rule]
        pooled = rule.pool is over_pixels or rule.clustering is not None
        center = styles.mean(0)
        unscaled = cls(
            center, torch.ones_like(center), len(template.mean_var) > 0, pooled and not len(template.mean_var)
        )
        scale = unscaled.of_images(styles)[:, : len(center)].std(0).nan_to_num(0).clamp_min(_MIN_DEVIATION)
        return cls(center, scale, unscaled.variances, unscaled.pooled)

    def of_images(self, styles: Tensor) -> Tensor:
        """(..., F): contributions of images with styles, mean and std, (..., 2C)."""
        if self.pooled:
            mean, std = styles.chunk(2, dim=-1)
            differences = mean - self.center.chunk(2)[0]
            return torch.cat([differences, std.square() + differences.square()], dim=-1) / self.scale
        differences = (styles - self.center) / self.scale
        return torch.cat([differences, differences.square()], dim=-1) if self.variances else differences

    def of_artifact(self, artifact: Artifact) -> Tensor:
        """(F,): the averages that an artifact reveals."""
        assert isinstance(artifact, StyleStatistics)
        return self.of_vectors(artifact.vector())

    def of_vectors(self, vectors: Tensor) -> Tensor:
        """(..., F): the averages that artifacts reveal, from all their moments (..., 2C) or (..., 4C)."""
        width = len(self.center)
        features = self.of_images(vectors[..., :width].double())
        if self.variances:
            within = vectors[..., width:].double() / self.scale.square()
            features = torch.cat([features[..., :width], features[..., width:] + within], dim=-1)
        return features


@dataclass(frozen=True, eq=False)
class Replays:
    """Styles of simulated clients of candidates, in one round.

    Attributes:
        moments: The features that are read from a style.
        contributions: (N, F) features of each candidate: the mean over the simulated clients that hold it.
        composed: (M, F) the mean contribution of each simulated artifact's images.
        remainders: (M, F) features of each simulated artifact, defense included, minus `composed`.
    """

    moments: StyleMoments
    contributions: Tensor
    composed: Tensor
    remainders: Tensor

    @classmethod
    def of(cls, adversary: Adversary, seen: SeenRound, images: Tensor, n: int, simulations: int) -> "Replays":
        """Simulates at least `simulations` clients of `n` images each; every candidate (N, 3, H, W) is in one of them."""
        simulator = seen.simulator
        assert isinstance(simulator, StyleSimulator)
        rng, n_candidates = generator(adversary.seed, 61, n, seen.number), len(images)
        clients = _clients(n_candidates, n, simulations, rng)
        mean, std = simulator.parts_of_clients(images, clients)
        styles = torch.cat([mean, std], dim=2).double()
        moments = StyleMoments.of(styles.flatten(0, 1), simulator.template)
        in_clients = moments.of_images(styles)
        total = in_clients.new_zeros(n_candidates, in_clients.shape[2]).index_add_(
            0, clients.flatten(), in_clients.flatten(0, 1)
        )
        contributions = total / clients.flatten().bincount(minlength=n_candidates)[:, None]
        maps = simulator.maps(images)
        features = [
            moments.of_artifact(simulator.share(simulator.draft(mean[i], std[i], "client", maps[clients[i]]), rng))
            for i in range(min(len(clients), simulations))
        ]
        composed = contributions[clients[: len(features)]].mean(1)
        return cls(moments, contributions, composed, torch.stack(features) - composed)


def _clients(count: int, n: int, simulations: int, rng: torch.Generator) -> Tensor:
    """(M, n): indices of the images of simulated clients; all `count` images occur equally often, or almost."""
    n_passes = max(math.ceil(n / count), round(simulations * n / count), 1)
    order = torch.cat([torch.randperm(count, generator=rng) for _ in range(n_passes)])
    n_missing = -len(order) % n
    return torch.cat([order, torch.randperm(max(count, n_missing), generator=rng)[:n_missing] % count]).view(-1, n)


class MembershipTest:
    """Likelihood ratio of a style with and without each candidate among its n images.

    With candidate x the features have mean m + (x - m) / n and covariance (n - 1) S / n^2 + T, without it m and S / n + T.
    m and S are the candidates' mean and covariance, T the remainders' covariance. S is shrunk towards its diagonal. With fewer
    features than candidates, the test distinguishes images that explain the style together from other images.
    """

    def __init__(self, replays: Sequence[Replays], index: Tensor, n: int) -> None:
        """Prepares the test of the candidates at `index` (N,) from the replays of several rounds."""
        self._replays = replays
        styles = torch.cat([replay.contributions[index] for replay in replays], dim=1)
        remainders = torch.cat([replay.remainders for replay in replays], dim=1)
        self._center = styles.mean(0) + remainders.mean(0)
        deviations, residuals = styles - styles.mean(0), remainders - remainders.mean(0)
        variances = deviations.square().mean(0)
        noise_variances = torch.maximum(residuals.square().mean(0), _MIN_RELATIVE_NOISE**2 * variances).clamp_min(
            _MIN_DEVIATION**2
        )
        shrinkage = max(
            float(ledoit_wolf_shrinkage((residuals / noise_variances.sqrt()).numpy(), assume_centered=True)),
            _MIN_SHRINKAGE,
        )
        diagonal_variances = shrinkage * noise_variances + _MIN_SHRINKAGE * variances / n
        self._scale = diagonal_variances.sqrt()
        deviations, residuals = (
            deviations / self._scale,
            residuals / self._scale * math.sqrt((1 - shrinkage) / len(residuals)),
        )
        self._shift = deviations / n
        with_candidate, without_candidate = (
            torch.cat([math.sqrt(weight / len(deviations)) * deviations, residuals])
            for weight in ((n - 1) / n**2, 1 / n)
        )
        self._with_candidate, self._without_candidate = _Gaussian(with_candidate), _Gaussian(without_candidate)

    def log_ratio(self, artifacts: Sequence[Artifact]) -> Tensor:
        """Log-likelihood ratios (N,) of the candidates, given an artifact of each round."""
        features = [
            replay.moments.of_artifact(artifact) for replay, artifact in zip(self._replays, artifacts, strict=True)
        ]
        difference = (torch.cat(features) - self._center) / self._scale
        return (
            self._with_candidate.log_density(difference - self._shift)
            - self._without_candidate.log_density(difference[None])
        ).float()


class _Gaussian:
    """The normal distribution of mean 0 and covariance I + rows^T rows of rows (Q, F)."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._root = torch.linalg.cholesky(torch.eye(len(rows), dtype=rows.dtype) + rows @ rows.T)
        self._log_determinant = 2 * float(self._root.diagonal().log().sum())

    def log_density(self, differences: Tensor) -> Tensor:
        """(N,): log-densities of differences (N, F), up to a constant that depends on F alone."""
        projection = torch.linalg.solve_triangular(self._root, self._rows @ differences.T, upper=False)
        distance: Tensor = differences.square().sum(1) - projection.square().sum(0)
        return -(distance + self._log_determinant) / 2
