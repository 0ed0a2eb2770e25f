"""Ranks images by the Gaussian likelihood of an average of styles if the image is one of its n images."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor

from ._simulation import Frame, SimulatedArtifacts

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


def _framed(simulated: SimulatedArtifacts, size: int, images: int) -> tuple[Tensor, Tensor]:
    """The simulated artifacts (S,) of this many images that are among the first `images`, and the first image of each."""
    first = torch.tensor([int(members[0]) for members in simulated.members])
    some = ((simulated.sizes == size) & (first < images)).nonzero().flatten()
    return some, first[some]
