"""Perceptual metrics of photographs, in the features of the pre-trained EfficientNet-Lite0."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import pretrained
from factories import seeded
from factories_core import truth
from torch import Tensor

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.config import AuditConfig
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.metrics.extractors import extractor_for, fitted, perceptual_distance
from fdgpriv.metrics.realism import features, kid
from fdgpriv.models import efficientnet_lite
from fdgpriv.models.efficientnet_lite import COLOURS, imagenet_classifier
from fdgpriv.models.training.photographs import HELD_OUT, photo_crops
from fdgpriv.tasks.images import Images


@pytest.fixture(scope="module")
def photographs() -> Tensor:
    return photo_crops(HELD_OUT, 12, 64, seeded(3))


@pretrained
def test_features_and_logits_are_the_networks(photographs: Tensor) -> None:
    extractor, network = extractor_for(True), imagenet_classifier()
    (mean, *_), (std, *_) = COLOURS
    with torch.no_grad():
        maps = network.stem((photographs - mean) / std)
        ends = []
        for block in network.blocks:
            maps = block(maps)
            ends.append(maps)
        last = network.last(maps)
        pooled = last.mean(dim=(2, 3))
        stages = extractor.stages(photographs)
    assert (extractor.num_features, extractor.classes) == (1280, 1000)
    assert torch.allclose(extractor(photographs), pooled, atol=1e-4)
    assert torch.allclose(extractor.logits(photographs), network(photographs), atol=1e-3)
    for ours, theirs in zip(stages, [ends[0], ends[2], ends[4], ends[10], last], strict=True):
        assert torch.allclose(ours, theirs, atol=1e-3)
    assert [64 // stage.shape[-1] for stage in stages] == [2, 4, 8, 16, 32]


@pretrained
def test_the_lpips_formula_written_out(photographs: Tensor) -> None:
    a, b = photographs[:1], photographs[1:2]
    slow = 0.0
    for ours, theirs in zip(extractor_for(True).stages(a), extractor_for(True).stages(b), strict=True):
        x, y = (maps[0].double().flatten(1).numpy() for maps in (ours, theirs))
        x, y = (rows / np.linalg.norm(rows, axis=0) for rows in (x, y))
        slow += float(np.square(x - y).sum(0).mean())
    assert float(perceptual_distance(True)(2 * a - 1, 2 * b - 1)) == pytest.approx(slow, rel=1e-4)


@pretrained
def test_distances_grow_with_the_damage(photographs: Tensor) -> None:
    noise = torch.randn(photographs.shape, generator=seeded(4))
    damaged = [(photographs + s * noise).clamp(0, 1) for s in (0, 0.05, 0.2, 0.8)]
    distance = [float(perceptual_distance(True)(2 * x - 1, 2 * photographs - 1).mean()) for x in damaged]
    realism = [kid(x, photographs, extractor_for(True), seeded(0)).value or 0.0 for x in damaged]
    assert distance[0] == pytest.approx(0, abs=1e-6)
    assert distance == sorted(distance)
    assert realism == sorted(realism)
    assert features(photographs, extractor_for(True)).shape == (12, 1280)


@pretrained
def test_the_names_say_which_network_it_was(photographs: Tensor) -> None:
    hash_ = extractor_for(True).weights[:8]
    for with_pretrained, network in ((True, f"efficientnet_lite0:{hash_}"), (False, "digits-extractor-1:")):
        truths = [truth(photographs[i : i + 1], photographs=with_pretrained) for i in range(4)]
        predictions = list(photographs[4:8])
        named = set(Images().details(predictions, truths)) | set(Images().of_set(predictions, truths))
        assert f"lpips[{network.split(':')[0]}]" in named
        for metric in ("fid", "kid", "is"):
            assert any(name.startswith(f"{metric}[{network}") for name in named)


def test_digits_are_resized_and_photographs_are_not(photographs: Tensor) -> None:
    assert fitted(photographs, False).shape[-1] == 32
    assert fitted(photographs, True) is photographs


# Which network scores what


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"dataset": "digits"}, "none"),
        ({"dataset": "pacs", "backbone": "resnet18"}, "all"),
        ({"dataset": "pacs", "backbone": "efficientnet_lite0"}, "styles"),
        ({"dataset": "pacs", "backbone": "timm:tf_efficientnet_lite0"}, "styles"),
    ],
)
def test_a_federation_of_the_network_itself_is_scored_by_it_for_frozen_encoders_only(
    options: dict[str, Any], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = AuditConfig(methods=("fedavg",), **options)
    monkeypatch.setattr(AuditConfig, "network", lambda self, spec, domains: (self.backbone or "small_resnet", ""))
    for installed, expected in ((True, wanted), (False, "none")):
        monkeypatch.setattr(efficientnet_lite, "installed", lambda installed=installed: installed)
        assert config.pretrained_metrics("fedavg", 3) == expected


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("kind", [StyleStatistics.kind, InterpolationStyle.kind, ModelState.kind])
def test_no_attack_is_scored_by_the_network_that_it_optimises_against(kind: str, frozen: bool) -> None:
    disclosed = SimpleNamespace(styles=SimpleNamespace(frozen_encoder=frozen))
    evaluator: Any = SimpleNamespace(method=SimpleNamespace(disclosure=lambda: disclosed))
    target: Any = SimpleNamespace(kind=kind)
    for given, expected in (("none", False), ("styles", frozen and kind != ModelState.kind), ("all", True)):
        evaluator.pretrained_metrics = given
        assert Evaluator.has_pretrained_metrics(evaluator, target) is expected
