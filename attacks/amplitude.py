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
from fdgpriv.metrics.pixels import EXACT_DB
from fdgpriv.roles import Attack

from ._blind import blind
from ._images import identified, lpips, psnr, realism, ssim
from ._phase import aligned_error, reduced, residual, retrieved
from ._reading import public_images

STARTS = ("public", "noise")


@dataclass(frozen=True)
class Amplitude(Attack):
    """Alternates between the amplitudes that are told and pixels in [0, 1], from several beginnings.

    Beginning in noise, hybrid input-output finds images that fit and are other images: half as many amplitudes as pixels
    do not determine one. What they leave open public images fill in: each restart begins with the phases of one of those
    whose spectra are most alike, and the guess is the mean of where error reduction leads.

    A spectrum does not tell where in the picture a thing is, nor which way up: the headline scores what is drawn as it is
    drawn, and ``psnr_aligned`` what it would score if it were moved and turned as is best, for the controls too.

    Attributes:
        steps: Of each restart.
        restarts: At least 1.
        start: ``public``, or ``noise``, of which the restart is kept whose amplitudes fit best.
    """

    family: ClassVar[str] = "reconstruction"
    reads: ClassVar[tuple[str, ...]] = (AmplitudeSpectrum.kind,)
    headline: ClassVar[str] = "psnr"
    higher_leaks: ClassVar[bool] = True
    threats: ClassVar[tuple[str, ...]] = ("server", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"restarts": 4}}

    steps: int = 5
    restarts: int = 8
    start: str = "public"

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise ValueError(f"amplitude.start: want one of {', '.join(STARTS)}; got {self.start!r}")
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise ValueError(f"amplitude.{name}: want at least 1, got {getattr(self, name)}")

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        images, _ = public_images(view)
        amplitudes = torch.fft.fft2(images).abs()
        roots = amplitudes.sqrt().flatten(1)
        guesses = [self._drawn(_told(question), images, roots, rng) for question in questions]
        known = blind(view, rng)
        return guesses, {**known, "unconditional": [self._drawn(amplitudes.mean(0), images, roots, rng)]}

    def _drawn(self, amplitude: Tensor, images: Tensor, roots: Tensor, rng: torch.Generator) -> Tensor:
        """The image (3, H, W) of these amplitudes; `roots` (N, 3HW) are those of public images' (N, 3, H, W)."""
        if self.start == "noise":
            start = torch.rand(self.restarts, *amplitude.shape, generator=rng)
            found = retrieved(amplitude, start, self.steps)
            return found[int(residual(amplitude, found).argmin())]
        distance = (roots - amplitude.sqrt().flatten()).square().sum(1)
        nearest = distance.topk(min(self.restarts, len(images)), largest=False).indices
        return reduced(amplitude, images[nearest], self.steps).mean(0)

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
