"""Degraded copies of images: as large as the images, of the same things, and no image itself."""

from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import Fitted

from fdgpriv.exam import Sitting
from fdgpriv.exam.marks import examine
from fdgpriv.federation import Dataset, generator
from fdgpriv.roles import Attack
from fdgpriv.threat import threat

module: Any = import_module("fdgpriv.attacks._copies")


@pytest.mark.parametrize("name", module.COPIES)
def test_a_copy_is_near_its_image_and_not_the_same(tiny: Dataset, name: str, rng: torch.Generator) -> None:
    images = tiny.domains[0].images[:20]
    copy = module.copies(images)[name]
    assert copy.shape == images.shape
    assert copy.dtype == images.dtype
    assert 0 <= float(copy.min()) <= float(copy.max()) <= 1
    changed = (copy - images).square().flatten(1).mean(1)
    assert float(changed.min()) > 0
    other = (images.roll(1, 0) - images).square().flatten(1).mean(1)
    assert float(changed.mean()) < float(other.mean())


def test_a_crop_is_a_part_of_its_image_made_larger(rng: torch.Generator) -> None:
    ramp = torch.linspace(0, 1, 32).expand(1, 3, 32, 32)
    (copy,) = module.cropped(ramp, rng)
    rise = float(copy[0, 0, -4] - copy[0, 0, 3]) / 25  # away from the edges
    assert rise == pytest.approx(28 / 32 / 31, rel=0.02)


def test_jpeg_loses_more_at_a_lower_quality(tiny: Dataset) -> None:
    images = tiny.domains[0].images[:8]
    errors = [float((module.recompressed(images, quality) - images).square().mean()) for quality in (95, 50, 5)]
    assert errors == sorted(errors)


def test_identification_tells_how_well_copies_do(fitted: Fitted) -> None:
    proctor = fitted.proctor()
    proctor.per_client = {1: 2}
    (sitting,) = proctor.style_sittings(threat("server"), (1,), reconstruction=False)
    attack = Attack.named("identification").configured({"practice": 40})
    marks = examine(attack, [Sitting(sitting.view, sitting.items)], (1,), generator(0))[0][1]
    names = {f"top1_{name}" for name in module.COPIES}
    assert names <= set(marks.details)
    exact = sum(marks.headline["attack"]) / len(marks.units)
    for name in names:
        found, blind = (sum(marks.details[name][who]) / len(marks.units) for who in ("attack", "mean_image"))
        assert blind < found <= exact
