"""Phase retrieval: what an amplitude spectrum gives away, and what it cannot."""

from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted, fit
from torch import Tensor

from fdgpriv.exam import Sitting
from fdgpriv.exam.marks import Marks, examine
from fdgpriv.federation import Dataset, generator
from fdgpriv.kinds import AmplitudeSpectrum
from fdgpriv.roles import Attack
from fdgpriv.threat import threat

phase: Any = import_module("fdgpriv.attacks._phase")


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
    settings = {"style_of": "amplitude", "augmentation": "2"}
    return fit(tiny, clients=6, method="ccst", settings=settings)


def test_spectra_on_the_wire_are_those_of_the_clients_images(spectra: Fitted) -> None:
    subject = spectra.proctor().subject(AmplitudeSpectrum.kind)
    assert set(subject.receiver) == set(subject.wire) == set(spectra.population.clients)
    for name, artifact in subject.wire.items():
        images = spectra.population.clients[name].images
        expected = torch.stack([torch.fft.fft2(image).abs() for image in images]).mean(0)
        torch.testing.assert_close(artifact.tensors()["amplitude"], expected, atol=1e-3, rtol=1e-4)
        back = subject.craft.unflat(subject.craft.flat(artifact, None), None)
        assert torch.equal(back.tensors()["amplitude"], artifact.tensors()["amplitude"])


def examined(fitted: Fitted, settings: dict[str, object]) -> Marks:
    """Of single images' spectra."""
    proctor = fitted.proctor()
    proctor.per_client = {1: 3}
    sittings: list[Sitting] = proctor.sittings(
        proctor.subject(AmplitudeSpectrum.kind), threat("server"), (1,), reconstruction=True
    )
    return examine(Attack.named("amplitude").configured(settings), sittings, (1,), generator(0))[0][1]


def test_what_is_drawn_of_one_image_s_spectrum_is_nearer_to_it_than_any_control(spectra: Fitted) -> None:
    marks = examined(spectra, {})
    drawn = {name: float(np.mean(values)) for name, values in marks.headline.items()}
    controls = ("noise", "mean_image", "random_style", "other_client", "other_domain", "unconditional")
    assert drawn["attack"] > max(drawn[name] for name in controls)
    aligned = {name: float(np.mean(values)) for name, values in marks.details["psnr_aligned"].items()}
    assert aligned["attack"] > max(aligned[name] for name in ("mean_image", "random_style", "other_client"))
    assert aligned["attack"] >= drawn["attack"] - 1e-3


def test_from_noise_the_amplitudes_fit_and_the_image_is_another(spectra: Fitted) -> None:
    """There are half as many amplitudes as pixels: who holds no image like it draws another with its spectrum."""
    marks = examined(spectra, {"start": "noise", "steps": 30, "restarts": 1})
    assert np.mean(marks.headline["attack"]) < np.mean(marks.headline["mean_image"])


@pytest.mark.parametrize("field", ["steps", "restarts"])
def test_nothing_is_retrieved_in_no_steps(field: str) -> None:
    with pytest.raises(ValueError, match=f"amplitude.{field}: want at least 1, got 0"):
        Attack.named("amplitude").configured({field: 0})
