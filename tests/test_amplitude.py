"""Phase retrieval: what an amplitude spectrum gives away, and what it cannot."""

from importlib import import_module
from itertools import pairwise
from typing import Any

import factories
import numpy as np
import pytest
import torch
from conftest import Fitted, under
from factories import fitted_once, in_one_row_and_back
from torch import Tensor

from fdgpriv.artifacts.style import AmplitudeSpectrum
from fdgpriv.data.dataset import Dataset
from fdgpriv.verdicts.trial_scores import TrialScores

phase: Any = import_module("fdgpriv.attacks.amplitude")


def sparse(rng: torch.Generator, side: int = 16) -> Tensor:
    """A bright patch on black: so many pixels are known to be 0 that its amplitudes all but determine it."""
    image = torch.zeros(1, 3, side, side)
    image[:, :, 3:8, 4:9] = torch.rand(1, 3, 5, 5, generator=rng)
    return image


def test_an_image_with_its_own_phases_stays(rng: torch.Generator) -> None:
    image = torch.rand(2, 3, 8, 8, generator=rng)
    amplitude = torch.fft.fft2(image).abs()
    torch.testing.assert_close(phase.projected(amplitude, image), image, atol=1e-5, rtol=0)
    torch.testing.assert_close(phase.retrieved(amplitude, image, 5), image, atol=1e-4, rtol=0)
    assert float(phase.residual(amplitude, image).max()) < 1e-5


def test_retrieval_comes_nearer_to_the_amplitudes(rng: torch.Generator) -> None:
    amplitude = torch.fft.fft2(sparse(rng))[0].abs()
    start = torch.rand(4, 3, 16, 16, generator=rng)
    before, after = (phase.residual(amplitude, phase.retrieved(amplitude, start, steps)) for steps in (1, 200))
    assert bool((after < 0.5 * before).all())
    errors = [phase.residual(amplitude, phase.reduced(amplitude, start, steps)) for steps in range(1, 20)]
    assert all(bool((later <= sooner + 1e-6).all()) for sooner, later in pairwise(errors))


def test_a_moved_or_turned_image_is_the_same_but_for_that(rng: torch.Generator) -> None:
    image, other = torch.rand(2, 3, 8, 8, generator=rng)
    moved = image.flip(1, 2).roll((2, 5), (1, 2))
    assert float(phase.aligned_error(moved, image)) < 1e-6
    assert float((moved - image).square().mean()) > 0.01
    turns = [turned.roll((y, x), (1, 2)) for turned in (other, other.flip(1, 2)) for y in range(8) for x in range(8)]
    best = min(float((turned - image).square().mean()) for turned in turns)
    assert float(phase.aligned_error(other, image)) == pytest.approx(best, abs=1e-6)


@pytest.fixture(scope="module")
def spectra(tiny: Dataset) -> Fitted:
    """CCST with amplitudes for styles."""
    return fitted_once(tiny, clients=6, method="ccst", settings={"style_of": "amplitude", "augmentation": "2"})


def test_spectra_that_crossed_are_those_of_the_images(spectra: Fitted) -> None:
    target = spectra.evaluator().series(AmplitudeSpectrum.kind)
    assert set(target.receiver) == set(target.wire) == set(spectra.population.clients)
    for name, artifact in target.wire.items():
        images = spectra.population.clients[name].images
        expected = torch.stack([torch.fft.fft2(image).abs() for image in images]).mean(0)
        torch.testing.assert_close(artifact.tensors()["amplitude"], expected, atol=1e-3, rtol=1e-4)
    in_one_row_and_back(target, atol=0, rtol=0)


def evaluated(fitted: Fitted, spec: str) -> TrialScores:
    """Of single images' spectra."""
    return factories.evaluated(fitted, spec, AmplitudeSpectrum.kind, (1,), per_client={1: 3}, seed=0)[1]


def test_a_drawn_image_is_nearer_than_any_control(spectra: Fitted) -> None:
    scores = evaluated(spectra, "amplitude")
    drawn = {name: float(np.mean(values)) for name, values in scores.headline.items()}
    controls = ("noise", "mean_image", "random_style", "other_client", "other_domain", "unconditional")
    assert drawn["attack"] > max(drawn[name] for name in controls)
    aligned = {name: float(np.mean(values)) for name, values in scores.details["psnr_aligned"].items()}
    assert aligned["attack"] > max(aligned[name] for name in ("mean_image", "random_style", "other_client"))
    assert aligned["attack"] >= drawn["attack"] - 1e-3


@pytest.mark.slow
def test_amplitudes_that_are_cut_are_made_as_long_as_before(spectra: Fitted) -> None:
    found = evaluated(under(spectra, "clip:clip=0.2"), "amplitude").headline
    assert np.mean(found["attack"]) > max(
        np.mean(found[name]) for name in ("mean_image", "random_style", "other_client")
    )


@pytest.mark.slow
def test_from_noise_another_image_of_the_amplitudes_is_drawn(spectra: Fitted) -> None:
    """There are half as many amplitudes as pixels: who holds no image like it draws another with its spectrum."""
    scores = evaluated(spectra, "amplitude:start=noise,steps=30,restarts=1")
    assert np.mean(scores.headline["attack"]) < np.mean(scores.headline["mean_image"])
