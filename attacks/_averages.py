"""Ranks candidate images by the Gaussian likelihood of an average of n styles, given that the candidate is among the n."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor

from ._simulation import Frame, SimulatedArtifacts

_MIN_VARIANCE = 1e-6  # of any direction, relative to the styles' variance
_MAX_AXES = 512  # longer vectors are read along at most so many principal axes of the public images' vectors


def shrunk_covariance(remainders: Tensor, variances: Tensor) -> Tensor:
    """Ledoit-Wolf covariance (D, D) of remainders (M, D) of mean 0, each component in units of its `variances` (D,) squared
    root.
    """
    estimator = LedoitWolf().fit((remainders / variances.sqrt()).double().numpy())
    covariance: Tensor = torch.from_numpy(estimator.covariance_)
    return covariance


def whitener(covariance: Tensor, variances: Tensor) -> Tensor:
    """Matrix (D, D) that whitens differences in their original units, from their `shrunk_covariance`.

    Directions with less than a thousandth of a style's standard deviation are not amplified further.
    """
    values, vectors = torch.linalg.eigh(covariance + _MIN_VARIANCE * torch.eye(len(variances), dtype=torch.float64))
    root: Tensor = ((vectors / values.clamp_min(_MIN_VARIANCE).sqrt()) / variances.sqrt()[:, None].double()).float()
    return root


def principal_axes(rows: Tensor) -> Tensor:
    """Orthonormal axes (D, A), A <= `_MAX_AXES`, along which rows (M, D) vary most; all axes if D is no larger."""
    if rows.shape[1] <= _MAX_AXES:
        return torch.eye(rows.shape[1])
    values, vectors = torch.linalg.eigh((rows @ rows.T).double())
    sure = (values > _MIN_VARIANCE * values[-1]).nonzero().flatten()[-_MAX_AXES:]
    axes: Tensor = (rows.T.double() @ vectors[:, sure] / values[sure].sqrt()).float()
    return axes


@dataclass(frozen=True, eq=False)
class Ranking:
    """Log-likelihood of an artifact of n images given that a candidate is among them; the maximum over possible frames.

    Attributes:
        frames: A single frame, or one frame for each domain that the client may belong to.
        spread: (D,) variance of a public image's style around its frame's center.
        root: (D, D') whitens the remainder: the other images' and the defense's contribution.
    """

    frames: Sequence[Frame]
    variances: Tensor
    root: Tensor

    @classmethod
    def of(cls, frames: Sequence[Frame], simulated: SimulatedArtifacts, size: int) -> "Ranking":
        """Estimates the remainder from the simulated artifacts of `size` images."""
        styles = torch.cat([frame.public_styles for frame in frames])
        center = torch.cat([frame.center.expand_as(frame.public_styles) for frame in frames])
        variances = (styles - center).square().mean(0).clamp_min(1e-12)
        selected, first_images = _artifacts_of_size(simulated, size, len(styles))
        remainders = (
            simulated.inputs[selected, : styles.shape[1]]
            - center[first_images]
            - (styles[first_images] - center[first_images]) / size
        )
        spread = variances.sqrt()[:, None]
        axes = principal_axes((styles - center) / spread.T)
        units = torch.ones(axes.shape[1])
        root = whitener(shrunk_covariance(remainders / spread.T @ axes, units), units)
        return cls(frames, variances, axes / spread @ root)

    @cached_property
    def centers(self) -> Tensor:
        """(F, D): the mean style of each frame's public images."""
        return torch.stack([frame.center for frame in self.frames])

    def styles(self, images: Tensor) -> Tensor:
        """(F, N, D'): by frame, the whitened difference of each image's style from the frame's center."""
        styles = torch.stack([frame.styles(images) for frame in self.frames])
        return (styles - self.centers[:, None]) @ self.root

    def __call__(self, artifact: Tensor, n: int, styles: Tensor, index: Tensor) -> Tensor:
        """(T, N): the log-likelihood, up to a constant, of the artifact with each of the candidates at `index` (T, N).

        Args:
            artifact: Its vector (D,).
            n: Its number of images.
            styles: (F, P, D') of all candidates, as by `styles`.
            index: Positions of the candidates among all.
        """
        difference = (artifact[: self.centers.shape[1]] - self.centers) @ self.root
        return -(difference[:, None, None] - styles[:, index] / n).square().sum(-1).amin(0)

    def typicality(self, images: Tensor) -> Tensor:
        """(N,): minus the squared distance of the styles of images (N, 3, H, W) from the center of the first frame."""
        return -((self.frames[0].styles(images) - self.centers[0]).square() / self.variances).sum(1)


def _artifacts_of_size(simulated: SimulatedArtifacts, size: int, n_images: int) -> tuple[Tensor, Tensor]:
    """Simulated artifacts (S,) of `size` images whose first image is among the first `n_images`, and that first image (S,)."""
    first_images = torch.tensor([int(members[0]) for members in simulated.members])
    selected = ((simulated.sizes == size) & (first_images < n_images)).nonzero().flatten()
    return selected, first_images[selected]
