"""Amplitude: reconstructs images from shared amplitude spectra by phase retrieval.

References: FedDG-ELCFS and CCST's Appendix E, which share spectra; Fienup, "Phase retrieval algorithms: a comparison",
Applied Optics 1982 (hybrid input-output, error reduction). A real image of N pixels has about N / 2 distinct
amplitudes, so that many images share them unless most pixels are 0. Translation on the torus and rotation by 180
degrees never change them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.style import AmplitudeSpectrum
from fdgpriv.attack import FEW_GROUP_SIZES, Attack
from fdgpriv.metrics.pixels import EXACT_DB
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.images import Images
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.fields import PositiveInt

BETA = 0.9  # feedback of hybrid input-output
_REDUCTION_SHARE = 0.25  # of the steps, at the end: error reduction


class UnplacedImages(Images):
    """Image reconstruction from an artifact that reveals neither position nor orientation; also scores the best alignment."""

    def details(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
        aligned_psnr = torch.stack(
            [_aligned(prediction, truth) for prediction, truth in zip(predictions, truths, strict=True)]
        )
        return {**super().details(predictions, truths), "psnr_aligned": aligned_psnr}


@dataclass(frozen=True)
class Amplitude(Attack):
    """Alternates between the given amplitudes and pixels in [0, 1], from several starting images.

    Started from noise, hybrid input-output finds images that have the amplitudes but are not the private image: half as
    many amplitudes as pixels do not determine it. Public images supply the missing phases: each restart begins with the
    phases of one of the public images whose spectra are nearest, and the prediction is the mean of the results of error
    reduction.

    A spectrum determines neither position nor orientation. The main score compares the prediction unaligned;
    ``psnr_aligned`` compares it at the best translation and rotation, for the controls too.

    Attributes:
        steps: Steps of each restart.
        restarts: Number of restarts, at least 1.
        start: ``public``, or ``noise``, where the restart with the best fitting amplitudes is kept.
    """

    reads = (AmplitudeSpectrum,)
    task = UnplacedImages()
    threats = ("server", "client", "third_party")
    group_sizes = FEW_GROUP_SIZES

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"restarts": 4}}

    steps: PositiveInt = 5
    restarts: PositiveInt = 8
    start: Literal["public", "noise"] = "public"

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        images, _ = adversary.public_images
        amplitudes = torch.fft.fft2(images).abs()
        roots = amplitudes.sqrt().flatten(1)
        predictions = [
            self._reconstruction(
                _amplitude(observation) / adversary.surviving_share(observation.n_images, _amplitude_vector),
                images,
                roots,
                rng,
            )
            for observation in observations
        ]
        return Predictions(
            predictions, {"unconditional": [self._reconstruction(amplitudes.mean(0), images, roots, rng)]}
        )

    def _reconstruction(self, amplitude: Tensor, public_images: Tensor, roots: Tensor, rng: torch.Generator) -> Tensor:
        """Reconstructs an image (3, H, W) with this amplitude spectrum.

        Args:
            amplitude: (3, H, W).
            public_images: (N, 3, H, W).
            roots: (N, 3HW) square roots of the public images' amplitudes.
            rng: Draws the noise to start from.
        """
        if self.start == "noise":
            start = torch.rand(self.restarts, *amplitude.shape, generator=rng)
            images = retrieved(amplitude, start, self.steps)
            return images[int(residual(amplitude, images).argmin())]
        distance = (roots - amplitude.sqrt().flatten()).square().sum(1)
        nearest = distance.topk(min(self.restarts, len(public_images)), largest=False).indices
        return reduced(amplitude, public_images[nearest], self.steps).mean(0)


def _amplitude_vector(artifact: Artifact) -> Tensor:
    """The amplitudes of an artifact (3HW,)."""
    assert isinstance(artifact, AmplitudeSpectrum)
    return artifact.amplitude.flatten()


def _amplitude(observation: Observation) -> Tensor:
    """The observed amplitudes (3, H, W), with values below 0, which noise causes, set to 0."""
    assert isinstance(observation.artifact, AmplitudeSpectrum)
    return observation.artifact.amplitude.clamp_min(0)


def _aligned(prediction: Prediction, truth: GroundTruth) -> Tensor:
    """Mean PSNR in decibels over the artifact's images, each at its best translation and rotation."""
    errors = torch.stack([aligned_error(prediction, image) for image in truth.images])
    return (-10 * errors.double().clamp_min(10 ** (-EXACT_DB / 10)).log10()).mean()


def retrieved(amplitude: Tensor, start: Tensor, steps: int) -> Tensor:
    """Images (R, 3, H, W) in [0, 1] that approximate amplitudes (3, H, W), from `start` by hybrid input-output."""
    image, last_steps = start, int(_REDUCTION_SHARE * steps)
    for _ in range(steps - last_steps):
        projection = projected(amplitude, image)
        clipped = projection.clamp(0, 1)
        image = torch.where(projection == clipped, projection, image - BETA * (projection - clipped))
    return reduced(amplitude, image, last_steps)


def reduced(amplitude: Tensor, start: Tensor, steps: int) -> Tensor:
    """As `retrieved`, by error reduction: the distance to the amplitudes never grows, and images stay near `start`."""
    image = start
    for _ in range(steps):
        image = projected(amplitude, image).clamp(0, 1)
    return image.clamp(0, 1)


def projected(amplitude: Tensor, image: Tensor) -> Tensor:
    """The real image (R, 3, H, W) with these amplitudes and the phases of `image`; its values may leave [0, 1]."""
    spectrum = torch.polar(amplitude.expand_as(image).contiguous(), torch.fft.fft2(image).angle())
    projection: Tensor = torch.fft.ifft2(spectrum).real
    return projection


def residual(amplitude: Tensor, images: Tensor) -> Tensor:
    """Relative distance (R,) between the amplitudes of images (R, 3, H, W) and the given amplitudes."""
    difference = (torch.fft.fft2(images).abs() - amplitude).square().sum(dim=(1, 2, 3))
    relative: Tensor = difference / amplitude.square().sum(dim=(-3, -2, -1)).clamp_min(1e-12)
    return relative.sqrt()


def aligned_error(image: Tensor, truth: Tensor) -> Tensor:
    """The least mean squared error () of an image (3, H, W) over translations on the torus and rotation by 180 degrees."""
    truth_spectrum = torch.fft.fft2(truth)
    best = torch.tensor(-torch.inf)
    for rotated in (image, image.flip(1, 2)):
        overlap = torch.fft.ifft2(truth_spectrum * torch.fft.fft2(rotated).conj()).real.sum(0)
        best = torch.maximum(best, overlap.max())
    squares = image.square().sum() + truth.square().sum() - 2 * best
    return squares.clamp_min(0) / image.numel()
