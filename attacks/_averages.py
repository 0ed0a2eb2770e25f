"""Gaussian models of averages of styles: how likely an average is if a given image is one of its n images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor

from fdgpriv.adversary import Adversary

from ._simulation import Frame, SimulatedArtifacts, frames

_FINEST = 1e-6  # least variance in any direction, relative to the styles' variance


def shrunk(rest: Tensor, spread: Tensor) -> Tensor:
    """Shrunk covariance (D, D) of remainders (M, D) of mean 0, in units of variances `spread` (D,)."""
    model = LedoitWolf().fit((rest / spread.sqrt()).double().numpy())
    covariance: Tensor = torch.from_numpy(model.covariance_)
    return covariance


def whitener(covariance: Tensor, spread: Tensor) -> Tensor:
    """Root (D, D) of the inverse of such a covariance; whitens differences in their original units.

    Directions of less than a thousandth of a style's standard deviation are not amplified further.
    """
    values, vectors = torch.linalg.eigh(covariance + _FINEST * torch.eye(len(spread), dtype=torch.float64))
    root: Tensor = ((vectors / values.clamp_min(_FINEST).sqrt()) / spread.sqrt()[:, None].double()).float()
    return root


class CentredGaussian:
    """The normal distribution of mean 0 with this covariance (D, D), in units of variances `spread` (D,)."""

    def __init__(self, covariance: Tensor, spread: Tensor) -> None:
        self.root = whitener(covariance, spread).double()
        self.constant = float(torch.linalg.slogdet(self.root).logabsdet) - len(spread) / 2 * math.log(2 * math.pi)

    def log_density(self, rest: Tensor) -> Tensor:
        """Log-densities (...) of differences (..., D)."""
        return self.constant - (rest.double() @ self.root).square().sum(-1) / 2


@dataclass(frozen=True, eq=False)
class Ranking:
    """The log-likelihood of an artifact of n images given one of them, the maximum over its possible frames.

    Attributes:
        frames: One, or one for each domain that the client may belong to.
        spread: (D,) variance of a public image's style around its frame's center.
        root: (D, D') whitens the remainder: the other images' and the defense's contribution.
    """

    frames: Sequence[Frame]
    spread: Tensor
    root: Tensor

    @classmethod
    def of(cls, frames: Sequence[Frame], simulated: SimulatedArtifacts, size: int) -> "Ranking":
        """Estimates the remainder from the simulated artifacts of `size` images."""
        styles = torch.cat([frame.own for frame in frames])
        center = torch.cat([frame.center.expand_as(frame.own) for frame in frames])
        spread = (styles - center).square().mean(0).clamp_min(1e-12)
        some, first = _framed(simulated, size, len(styles))
        rest = simulated.inputs[some, : styles.shape[1]] - center[first] - (styles[first] - center[first]) / size
        return cls(frames, spread, whitener(shrunk(rest, spread), spread))

    @cached_property
    def centers(self) -> Tensor:
        """(F, D): the mean style of each frame's public images."""
        return torch.stack([frame.center for frame in self.frames])

    def styles(self, images: Tensor) -> Tensor:
        """(F, N, D'): by frame, the whitened distance of each image's style from the frame's center."""
        own = torch.stack([frame.styles(images) for frame in self.frames])
        return (own - self.centers[:, None]) @ self.root

    def __call__(self, artifact: Tensor, n: int, styles: Tensor, index: Tensor) -> Tensor:
        """(T, N): the log-likelihood, up to a constant, of the artifact with each of the candidates at `index` (T, N).

        Args:
            artifact: Its vector (D,).
            n: Its number of images.
            styles: (F, P, D') of all candidates, as by `styles`.
            index: Into these.
        """
        apart = (artifact[: self.centers.shape[1]] - self.centers) @ self.root
        return -(apart[:, None, None] - styles[:, index] / n).square().sum(-1).amin(0)

    def ordinary(self, images: Tensor) -> Tensor:
        """(N,): how near the styles of images (N, 3, H, W) in the first frame are to its center."""
        return -((self.frames[0].styles(images) - self.centers[0]).square() / self.spread).sum(1)


class SizeModel(NamedTuple):
    """What is estimated for artifacts of one size: the candidates' styles (M, P, D) by frame, the test, and the prior (P,).

    The prior is minus the standardised distance of a candidate's style from the mean style.
    """

    membership_candidates: Tensor
    test: "PooledTest"
    prior: Tensor

    @classmethod
    def of(cls, adversary: Adversary, simulated: SimulatedArtifacts, size: int) -> "SizeModel":
        """Estimates it from the simulated artifacts of `size` images."""
        known = frames(adversary, size)
        membership_candidates = torch.stack([frame.styles(adversary.candidates) for frame in known])
        styles = torch.cat([frame.own for frame in known])
        centers = torch.stack([styles[simulated.domains == d].mean(0) for d in range(len(adversary.practice))])
        own = styles - centers[simulated.domains]
        spread = own.square().mean(0).clamp_min(1e-12)
        some, first = _framed(simulated, size, len(styles))
        expected = expected_average(centers[simulated.domains[first]], styles[first], size)
        rest = shrunk(simulated.inputs[some, : styles.shape[1]] - expected, spread)
        inside, outside = CentredGaussian(rest, spread), CentredGaussian(rest + shrunk(own, spread) / size**2, spread)
        prior = -((membership_candidates.mean(0) - styles.mean(0)).square() / spread).sum(1)
        return cls(membership_candidates, PooledTest(centers, inside, outside), prior)

    def log_ratio(self, adversary: Adversary, artifact: Tensor, candidates: Tensor, n: int) -> Tensor:
        """(N,): the log-likelihood ratio of the candidates at `candidates` (N,).

        Their own mean style is one more possible mean: if many of them are the client's, its domain is theirs.
        """
        own = self.membership_candidates[:1, candidates]
        if n > 1 and adversary.jointly:
            images = adversary.candidates[candidates]
            own = adversary.cache.get(
                ("styles among themselves", *candidates.tolist()),
                lambda: torch.cat(adversary.styles(images, images), dim=1)[None],
            )
        centers = self.test.centers
        styles = self.membership_candidates[:, candidates].expand(len(centers), -1, -1)
        test = replace(self.test, centers=torch.cat([centers, own.mean(1)]))
        return test.log_ratio(artifact, torch.cat([styles, own]), n)


@dataclass(frozen=True, eq=False)
class PooledTest:
    """Tests whether a style is in an average of n.

    Attributes:
        centers: (M, D) mean style of each domain that the client may belong to.
        inside: Distribution of the average around its mean given one of its styles.
        outside: The same given none.
    """

    centers: Tensor
    inside: CentredGaussian
    outside: CentredGaussian

    def log_ratio(self, artifact: Tensor, styles: Tensor, n: int) -> Tensor:
        """(N,): log-likelihood of the artifact (D,) with each membership candidate in it, minus that without.

        Args:
            artifact: The average.
            styles: Of the membership candidates, (N, D), or (M, N, D) where they differ by domain.
            n: Number of images of the artifact.
        """
        with_it = self.inside.log_density(artifact - expected_average(self.centers[:, None], styles, n))
        without = self.outside.log_density(artifact - self.centers)
        return with_it.logsumexp(0) - without.logsumexp(0)


def _framed(simulated: SimulatedArtifacts, size: int, images: int) -> tuple[Tensor, Tensor]:
    """The simulated artifacts (S,) of this many images that are among the first `images`, and the first image of each."""
    first = torch.tensor([int(members[0]) for members in simulated.members])
    some = ((simulated.sizes == size) & (first < images)).nonzero().flatten()
    return some, first[some]


def expected_average(center: Tensor, style: Tensor, n: int) -> Tensor:
    """(..., D): expected average of n styles, one of them `style`, the others around `center`."""
    return ((n - 1) * center + style) / n
