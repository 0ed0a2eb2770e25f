"""Degraded copies of images, and what identification tells: of copies, and as a bound on epsilon."""

import math

import pytest
import torch
from conftest import Fitted
from factories_core import truth

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.candidate import COPIES, Candidate, epsilon_lower_bound
from fdgpriv.tasks.copies import copies, cropped, recompressed
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_near_its_image_and_not_the_same(tiny: Dataset, name: str, rng: torch.Generator) -> None:
    images = tiny.domains[0].images[:20]
    copy = copies(images)[name]
    assert copy.shape == images.shape
    assert copy.dtype == images.dtype
    assert 0 <= float(copy.min()) <= float(copy.max()) <= 1
    changed = (copy - images).square().flatten(1).mean(1)
    assert float(changed.min()) > 0
    other = (images.roll(1, 0) - images).square().flatten(1).mean(1)
    assert float(changed.mean()) < float(other.mean())


def test_a_crop_is_a_part_of_its_image_made_larger(rng: torch.Generator) -> None:
    ramp = torch.linspace(0, 1, 32).expand(1, 3, 32, 32)
    (copy,) = cropped(ramp, rng)
    rise = float(copy[0, 0, -4] - copy[0, 0, 3]) / 25  # away from the edges
    assert rise == pytest.approx(28 / 32 / 31, rel=0.02)


def test_jpeg_loses_more_at_a_lower_quality(tiny: Dataset) -> None:
    images = tiny.domains[0].images[:8]
    errors = [float((recompressed(images, quality) - images).square().mean()) for quality in (95, 50, 5)]
    assert errors == sorted(errors)


@pytest.mark.slow
def test_identification_tells_how_well_copies_do(fitted: Fitted) -> None:
    evaluator = fitted.evaluator()
    evaluator.per_client = {1: 2}
    adversaries = evaluator.style_adversaries(threat("server"), (1,))
    attack = Attack.named("identification").configured({"simulations": 40})
    scores = evaluate_trials(attack, adversaries, (1,), generator(0))[0][1]
    names = {f"top1_{name}" for name in COPIES}
    assert names <= set(scores.details)
    exact = sum(scores.headline["attack"]) / len(scores.units)
    for name in names:
        found, baselines = (sum(scores.details[name][who]) / len(scores.units) for who in ("attack", "mean_image"))
        assert baselines < found <= exact


def of_one_image(candidates: int, images: int = 1) -> GroundTruth:
    """The truth of an artifact whose first image is the last of so many candidates."""
    rows = torch.arange(candidates)[None]
    return truth(torch.zeros(images, 3, 2, 2), candidates=rows, positions=torch.tensor([candidates - 1]))


def test_images_that_are_ranked_first_bound_epsilon() -> None:
    """Of 20 right of 20 the share is at least 0.05 ** (1 / 20) at 95 %; nobody shows more than ln N."""
    truths = [of_one_image(50)] * 20
    right, wrong = torch.arange(50.0), -torch.arange(50.0)
    found = epsilon_lower_bound([right] * 20, truths)
    assert (found.n, found.value) == (20, pytest.approx(math.log(50 * (0.05 ** (1 / 20) - 1e-5))))
    assert epsilon_lower_bound([wrong] * 20, truths).value == 0
    assert (
        epsilon_lower_bound([torch.zeros(50)] * 20, truths).value == 0
    )  # who cannot tell candidates apart shows nothing
    some = [right] * 12 + [wrong] * 8
    assert 0 < (epsilon_lower_bound(some, truths).value or 0) < math.log(50 * 12 / 20)
    assert epsilon_lower_bound([right[:1]], [of_one_image(1)]).value is None


def test_guessing_seldom_shows_an_epsilon_above_0(rng: torch.Generator) -> None:
    truths = [of_one_image(10)] * 30
    shown = [epsilon_lower_bound(list(torch.rand(30, 10, generator=rng)), truths).value or 0 for _ in range(300)]
    assert sum(value > 0 for value in shown) <= 24  # 5 % are 15; 24 or fewer in .99 of such tests


def test_artifacts_of_several_images_give_no_epsilon() -> None:
    ranked = [torch.arange(50.0)] * 3
    assert set(Candidate().of_set(ranked, [of_one_image(50)] * 3)) == {"epsilon_at_least"}
    assert Candidate().of_set(ranked, [of_one_image(50, images=2)] * 3) == {}
