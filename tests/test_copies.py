"""Degraded copies of images: as large as the images, of the same things, and no image itself."""

import pytest
import torch
from conftest import Fitted

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.scores import evaluate_trials
from fdgpriv.tasks.candidate import COPIES
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
