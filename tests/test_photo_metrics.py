"""Which networks compare reconstructed photographs: the pre-trained EfficientNet-Lite0, and the user's files."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import pretrained
from factories import seeded
from factories_core import truth
from PIL import Image
from torch import Tensor

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.audit import main
from fdgpriv.config import AuditConfig
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.metrics.networks import SHIPPED, MetricNetworks
from fdgpriv.metrics.perceptual import PublishedLpips
from fdgpriv.metrics.realism import features, kid
from fdgpriv.models import efficientnet_lite
from fdgpriv.models.efficientnet_lite import COLOURS, imagenet_classifier
from fdgpriv.tasks.images import Images
from fdgpriv.utils.checksum import digest
from fdgpriv.utils.torchvision_import import lpips
from fdgpriv.utils.warnings_filter import warnings_ignored
from shipped_networks.photographs import HELD_OUT, photo_crops

PRETRAINED = MetricNetworks(pretrained=True)


@pytest.fixture(scope="module")
def photographs() -> Tensor:
    return photo_crops(HELD_OUT, 12, 64, seeded(3))


@pretrained
def test_features_and_logits_are_the_networks(photographs: Tensor) -> None:
    extractor, network = PRETRAINED.extractor, imagenet_classifier()
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
    for ours, theirs in zip(PRETRAINED.extractor.stages(a), PRETRAINED.extractor.stages(b), strict=True):
        x, y = (maps[0].double().flatten(1).numpy() for maps in (ours, theirs))
        x, y = (rows / np.linalg.norm(rows, axis=0) for rows in (x, y))
        slow += float(np.square(x - y).sum(0).mean())
    assert float(PRETRAINED.distances[0](2 * a - 1, 2 * b - 1)) == pytest.approx(slow, rel=1e-4)


@pretrained
def test_distances_grow_with_the_damage(photographs: Tensor) -> None:
    noise = torch.randn(photographs.shape, generator=seeded(4))
    damaged = [(photographs + s * noise).clamp(0, 1) for s in (0, 0.05, 0.2, 0.8)]
    distance = [float(PRETRAINED.distances[0](2 * x - 1, 2 * photographs - 1).mean()) for x in damaged]
    realism = [kid(x, photographs, PRETRAINED.extractor, seeded(0)).value or 0.0 for x in damaged]
    assert distance[0] == pytest.approx(0, abs=1e-6)
    assert distance == sorted(distance)
    assert realism == sorted(realism)
    assert features(photographs, PRETRAINED.extractor).shape == (12, 1280)


@pretrained
def test_the_names_say_which_network_it_was(photographs: Tensor) -> None:
    hash_ = PRETRAINED.extractor.weights[:8]
    for with_pretrained, network in ((True, f"efficientnet_lite0:{hash_}"), (False, "digits-extractor-1:")):
        truths = [truth(photographs[i : i + 1], metric_networks=MetricNetworks(with_pretrained)) for i in range(4)]
        predictions = list(photographs[4:8])
        named = set(Images().details(predictions, truths)) | set(Images().of_set(predictions, truths))
        assert f"lpips[{network.split(':')[0]}]" in named
        for metric in ("fid", "kid", "is"):
            assert any(name.startswith(f"{metric}[{network}") for name in named)


def test_digits_are_resized_and_photographs_are_not(photographs: Tensor) -> None:
    assert SHIPPED.fitted(photographs).shape[-1] == 32
    assert PRETRAINED.fitted(photographs) is photographs


# Which network scores what


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the names of torchvision's files; they are not read here."""
    for name in ("inception_v3_google-0cc3c7bd.pth", "alexnet-owt-7be5be79.pth", "vgg16-397923af.pth"):
        (tmp_path / name).touch()
    return tmp_path


PUBLISHED = ("inception-v3:e3b0c442", "lpips[alex]:e3b0c442", "lpips[vgg]:e3b0c442")  # of empty files
OWN_NETWORK = "fedavg:network=inception"
LITE, DIGITS = "efficientnet_lite0", "digits-extractor-1"


@pytest.mark.parametrize("there", [True, False])  # the extra `pretrained`
@pytest.mark.parametrize(
    ("method", "backbone", "offline", "published"),
    [
        ("fedavg", "resnet18", LITE, PUBLISHED),
        ("fedavg", "efficientnet_lite0", DIGITS, PUBLISHED),
        ("fedavg", "timm:tf_efficientnet_lite0", DIGITS, PUBLISHED),
        ("fedavg", "alexnet", LITE, (PUBLISHED[0], PUBLISHED[2])),
        ("stablefdg", "alexnet", LITE, (PUBLISHED[0], PUBLISHED[2])),
        ("fedavg", "timm:vgg16_bn", LITE, PUBLISHED[:2]),
        ("fedavg", "timm:inception_v3", LITE, (LITE, *PUBLISHED[1:])),
        ("hfedf", None, LITE, PUBLISHED),
    ],
)
def test_no_network_compares_its_own_inversions(
    method: str,
    backbone: str | None,
    offline: str,
    published: tuple[str, ...],
    there: bool,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(efficientnet_lite, "installed", lambda: there)
    offline = offline if there else DIGITS
    config = AuditConfig(methods=(method,), dataset="pacs", backbone=backbone)
    if backbone is not None:
        monkeypatch.setattr(AuditConfig, "network", lambda self, spec, domains: (backbone, ""))
    assert config.metric_names(method, 3) == [offline, f"lpips[{offline}]"]
    given = replace(config, weights=folder)
    assert given.metric_names(method, 3) == [name if there or name != LITE else DIGITS for name in published]
    both = given.metric_networks(method, 3)
    assert both[0] == both[1]
    assert both[0].of_user


@pytest.mark.parametrize("method", ["ccst", "pardon"])
def test_all_networks_compare_frozen_encoders_images(method: str, folder: Path) -> None:
    config = AuditConfig(methods=(method,), dataset="pacs", backbone="alexnet", weights=folder)
    styles, others = config.metric_networks(method, 3)
    assert styles.names == PUBLISHED
    assert others.names == (PUBLISHED[0], PUBLISHED[2])
    assert config.metric_names(method, 3) == list(PUBLISHED)


def test_digits_are_compared_by_the_shipped_extractor(folder: Path) -> None:
    config = AuditConfig(methods=("ccst",), weights=folder)
    assert config.metric_networks("ccst", 3) == (SHIPPED, SHIPPED)
    assert config.metric_names("ccst", 3) == [DIGITS, f"lpips[{DIGITS}]"]


def test_inception_leaves_lpips_to_the_offline_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite, "installed", lambda: False)
    for name in ("alexnet-owt-7be5be79.pth", "vgg16-397923af.pth"):
        (folder / name).unlink()
    assert MetricNetworks.at_hand(folder).names == (PUBLISHED[0], f"lpips[{DIGITS}]")


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("kind", [StyleStatistics.kind, InterpolationStyle.kind, ModelState.kind])
def test_the_first_networks_compare_styles(kind: str, frozen: bool) -> None:
    disclosed = SimpleNamespace(styles=SimpleNamespace(frozen_encoder=frozen))
    method = SimpleNamespace(disclosure=lambda: disclosed)
    evaluator: Any = SimpleNamespace(method=method, metric_networks=(PRETRAINED, SHIPPED))
    target: Any = SimpleNamespace(kind=kind)
    expected = PRETRAINED if frozen and kind != ModelState.kind else SHIPPED
    assert Evaluator.networks_comparing(evaluator, target) is expected


# From the user's files


@pytest.fixture(scope="module")
def trunk() -> dict[str, Tensor]:
    """The convolutions of torchvision's AlexNet, of random tensors."""
    with warnings_ignored(UserWarning):
        alexnet = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False).net
    return {f"features.{name.split('.', 1)[1]}": tensor for name, tensor in alexnet.state_dict().items()}


@pytest.fixture
def alex(trunk: dict[str, Tensor], tmp_path: Path) -> Path:
    """A folder with this AlexNet."""
    torch.save(trunk, tmp_path / "alexnet-owt-7be5be79.pth")
    return tmp_path


def test_lpips_is_the_published_one_if_there(alex: Path, photographs: Tensor) -> None:
    networks = MetricNetworks.at_hand(alex)
    truths = [truth(photographs[i : i + 1], metric_networks=networks) for i in range(4)]
    details = Images().details(list(photographs[4:8]), truths)
    assert [name for name in details if name.startswith("lpips")] == ["lpips[alex]"]
    with torch.no_grad():
        wanted = PublishedLpips("alex", alex)(2 * photographs[4:8] - 1, 2 * photographs[:4] - 1)
    assert details["lpips[alex]"].tolist() == pytest.approx(wanted.tolist(), abs=1e-5)
    assert min(wanted) > 1e-3


@pytest.fixture
def words(alex: Path, tmp_path: Path) -> list[str]:
    """A quick audit of few small images, with the user's AlexNet."""
    for i in range(160):
        held = tmp_path / "images" / "ab"[i % 2] / "cd"[i // 2 % 2]
        held.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (i, 90, 200)).save(held / f"{i}.png")
    method = ["--method", OWN_NETWORK, "--preset", "quick", "--clients", "2", "--set", "rounds=1"]
    return [*method, "--weights", str(alex), "--dataset", "folder", "--data-root", str(tmp_path / "images")]


@pytest.mark.slow  # the names and the figures of the networks have quick tests above
def test_an_audit_compares_by_the_user_s_network(
    words: list[str], alex: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    attack = ["--image-size", "32", "--attack", "gradient_inversion:steps=1,simulations=2"]
    assert main([*words, *attack, "--out", str(out)]) == 0
    told = f"lpips[alex]:{digest(alex / 'alexnet-owt-7be5be79.pth')[:8]}"
    offline = LITE if efficientnet_lite.installed() else DIGITS
    said = f"{OWN_NETWORK}: images that attacks draw are compared by {offline}, {told}"
    assert said in capsys.readouterr().err
    results = json.loads((out / "results.json").read_text())
    assert results["config"]["setup"][OWN_NETWORK]["metrics"][-1] == told
    report = (out / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert f"Images that attacks draw are compared by {offline} and {told}." in report
    content, average_look = results["runs"][0]["attacks"]
    assert [name for name in content["metrics"] if "lpips" in name] == ["lpips[alex]"]
    assert average_look["secret"] == "average_look"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--image-size", "32", "--attack", "all"], "want the tensors of alexnet-owt-7be5be79.pth"),
        (["--image-size", "28", "--attack", "all"], "compares images from 31 px on, got 28 px"),
        (["--image-size", "32", "--attack", "none"], "--weights: has no effect"),
        (["--image-size", "32", "--attack", "membership"], "--weights: has no effect"),
    ],
)
def test_an_unusable_network_file_is_refused(
    wrong: list[str], told: str, words: list[str], alex: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"features.0.weight": torch.zeros(1)}, alex / "alexnet-owt-7be5be79.pth")
    out = tmp_path / "out"
    assert main([*words, *wrong, "--out", str(out)]) == 2
    assert told in capsys.readouterr().err
    assert not out.exists()
