"""Amplitude: phase retrieval, the image behind an amplitude spectrum.

Reference: METHODS 11, FedDG-ELCFS, and CCST's Appendix E, which share spectra; AUDIT 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.finding import Measured
from fdgpriv.kinds import AmplitudeSpectrum
from fdgpriv.roles import Attack

from ._images import EXACT_DB, identified, lpips, psnr, realism, ssim
from ._phase import aligned_error, residual, retrieved
from ._reading import held


@dataclass(frozen=True)
class Amplitude(Attack):
    """Alternates between the amplitudes that are told and pixels in [0, 1], and keeps the restart that fits best.

    The first restart begins in the mean public image, the others in noise. A spectrum does not tell where in the picture a
    thing is, nor which way up: the headline scores what is drawn as it is drawn, and ``psnr_aligned`` what it would
    score if it were moved and turned as is best, for the controls too.

    Attributes:
        steps: Of each restart.
        restarts: At least 1.
    """

    family: ClassVar[str] = "reconstruction"
    reads: ClassVar[tuple[str, ...]] = (AmplitudeSpectrum.kind,)
    headline: ClassVar[str] = "psnr"
    higher_leaks: ClassVar[bool] = True
    threats: ClassVar[tuple[str, ...]] = ("server", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"steps": 20, "restarts": 2}}

    steps: int = 100
    restarts: int = 4

    def __post_init__(self) -> None:
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise ValueError(f"amplitude.{name}: want at least 1, got {getattr(self, name)}")

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        images = torch.cat([domain.images for domain in held(view)])
        labels = torch.cat([domain.labels for domain in view.auxiliary])
        mean = images.mean(0)
        guesses = [self._drawn(_told(question), mean, rng) for question in questions]
        public = torch.fft.fft2(images).abs().mean(0)
        side = view.image_size
        blind = {
            "noise": list(torch.rand(3, 3, side, side, generator=rng)),
            "mean_image": [mean],
            "unconditional": [self._drawn(public, mean, rng)],
        }
        for domain in view.auxiliary:
            blind[f"domain_mean:{domain.name}"] = [domain.images.mean(0)]
        for label in labels.unique().tolist():
            blind[f"class_mean:{label}"] = [images[labels == label].mean(0)]
        return guesses, blind

    def _drawn(self, amplitude: Tensor, mean: Tensor, rng: torch.Generator) -> Tensor:
        start = torch.cat([mean[None], torch.rand(self.restarts - 1, *mean.shape, generator=rng)])
        found = retrieved(amplitude, start, self.steps)
        return found[int(residual(amplitude, found).argmin())]

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return psnr(guesses, truths)

    def describe(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Tensor]:
        name, distances = lpips(guesses, truths)
        moved = torch.stack([_aligned(g, t) for g, t in zip(guesses, truths, strict=True)])
        found = {"ssim": ssim(guesses, truths), name: distances, "identified": identified(guesses, truths)}
        return {**found, "psnr_aligned": moved}

    def realism(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Measured]:
        return realism(guesses, truths)


def _told(question: Question) -> Tensor:
    """The amplitudes (3, H, W), noise below 0 cut off."""
    assert isinstance(question.artifact, AmplitudeSpectrum)
    return question.artifact.amplitude.clamp_min(0)


def _aligned(guess: Guess, truth: Truth) -> Tensor:
    """Mean PSNR in decibels over the images behind the artifact, at each image's best translation and turn."""
    errors = torch.stack([aligned_error(guess, image) for image in truth.images])
    return (-10 * errors.double().clamp_min(10 ** (-EXACT_DB / 10)).log10()).mean()
