"""Backbones against torchvision's own forward pass, and sizes computed from exact layers."""

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from conftest import mostly_slow, pretrained
from PIL import Image
from torch import Tensor, nn

from fdgpriv import config
from fdgpriv.audit import main
from fdgpriv.dry_run import check_image_size
from fdgpriv.models.architectures import architecture
from fdgpriv.models.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone, Classifier, backbone
from fdgpriv.models.names import BACKBONES
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.torchvision_import import torchvision

LITE = "efficientnet_lite0"
PUBLISHED = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet50": "resnet50-0676ba61.pth",
    "alexnet": "alexnet-owt-7be5be79.pth",
    "densenet121": "densenet121-a639ec97.pth",
}


def build(name: str, **options: Any) -> Backbone:
    return backbone(name, mean=IMAGENET_MEAN, std=IMAGENET_STD, rng=generator(0), **options)


def pictures(*shape: int) -> Tensor:
    return torch.rand(shape, generator=generator(1))


@pytest.fixture
def no_torch_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TORCH_HOME, empty."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch_home"))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    return tmp_path / "torch_home"


@pytest.mark.parametrize("small_input", mostly_slow([False, True], [False]))
@pytest.mark.parametrize("name", [pytest.param(name, marks=pretrained if name == LITE else ()) for name in BACKBONES])
def test_every_stage_tells_its_channels(name: str, small_input: bool) -> None:
    network = build(name, small_input=small_input).eval()
    images = pictures(1, 3, 32, 32) if small_input or name == "small_resnet" else pictures(1, 3, 96, 96)
    assert network.stages == ("stem", *(f"layer{i}" for i in range(1, 6 if name == LITE else 5)))
    with torch.no_grad():
        for stage in network.stages:
            assert network.features(images, stage).shape[1] == network.channels[stage]
    assert network.out_channels == network.channels[network.stages[-1]]


@pytest.mark.parametrize(("name", "sides"), [("small_resnet", [16, 16, 8, 4, 4]), ("resnet18", [32, 32, 16, 8, 4])])
def test_maps_of_32_pixels_stay_large_enough_for_attention(name: str, sides: list[int]) -> None:
    network = build(name, small_input=True)
    images = pictures(2, 3, 32, 32)
    assert [network.features(images, stage).shape[2] for stage in network.stages] == sides


def torchvision_map(network: Any, name: str, images: Tensor) -> Tensor:
    """The last feature map by torchvision's own code, of images in [0, 1]."""
    mean, std = torch.tensor(IMAGENET_MEAN)[:, None, None], torch.tensor(IMAGENET_STD)[:, None, None]
    x = (images - mean) / std
    if name.startswith("resnet"):
        layers = list(network.children())[:-2]
        return nn.Sequential(*layers)(x)  # type: ignore[no-any-return]
    features = network.features(x)
    return features.relu() if name.startswith("densenet") else features  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("resnet18", "folder"),
        ("resnet18", "file"),
        ("resnet18", "torch home"),
        pytest.param("resnet50", "folder", marks=pytest.mark.slow),
        pytest.param("alexnet", "folder", marks=pytest.mark.slow),
        pytest.param("densenet121", "folder", marks=pytest.mark.slow),
    ],
)
def test_with_weights_it_is_torchvisions(name: str, place: str, tmp_path: Path, no_torch_home: Path) -> None:
    reference = getattr(torchvision.models, name)().eval()
    for module in reference.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
    folder = no_torch_home / "hub" / "checkpoints" if place == "torch home" else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PUBLISHED[name]
    torch.save(reference.state_dict(), path)
    network = build(name, weights=path if place == "file" else tmp_path).eval()
    images = pictures(2, 3, 80, 80)
    with torch.no_grad():
        assert torch.allclose(network(images), torchvision_map(reference, name, images), atol=1e-5)


def test_old_names_of_densenet_are_understood(tmp_path: Path) -> None:
    reference = torchvision.models.densenet121()
    old = OrderedDict()
    for key, value in reference.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            for part in ("norm", "conv"):
                key = (
                    key.replace(f"{part}1.", f"{part}.1.").replace(f"{part}2.", f"{part}.2.") if "layer" in key else key
                )
            old[key] = value
    torch.save(old, tmp_path / PUBLISHED["densenet121"])
    ours = build("densenet121", weights=tmp_path).state_dict()
    assert any(".norm.1." in key for key in old)
    expected = [v for k, v in reference.state_dict().items() if not k.startswith("classifier")]
    assert sum(v.double().abs().sum() for v in ours.values()) == sum(v.double().abs().sum() for v in expected)


def test_safetensors_are_read(tmp_path: Path) -> None:
    reference = torchvision.models.resnet18()
    safetensors.torch.save_file(reference.state_dict(), tmp_path / "resnet18-f37072fd.safetensors")
    network = build("resnet18", weights=tmp_path)
    assert torch.equal(network.state_dict()["body.layer1.0.conv1.weight"], reference.layer1[0].conv1.weight)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_missing_file_is_named_with_its_source(name: str, tmp_path: Path, no_torch_home: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        build(name, weights=tmp_path)
    message = str(caught.value)
    assert f"https://download.pytorch.org/models/{PUBLISHED[name]}" in message
    assert str(tmp_path) in message
    assert str(no_torch_home / "hub" / "checkpoints") in message


class Trap:
    """Unpickling it would call a function."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("trapped"),))


@pytest.mark.parametrize("content", ["trap", "noise", "empty", "list", "other network"])
def test_a_file_without_such_weights_is_refused(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / PUBLISHED["resnet18"]
    if content == "trap":
        torch.save({"weight": Trap()}, path)
    elif content == "noise":
        path.write_bytes(bytes(range(256)) * 8)
    elif content == "empty":
        path.touch()
    elif content == "list":
        torch.save([torch.zeros(1)], path)
    else:
        torch.save({"layer1.0.conv1.weight": torch.zeros(64, 64, 3, 3)}, path)
    with pytest.raises(ValueError, match="resnet18") as caught:
        build("resnet18", weights=path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "trapped").exists()


def test_the_trap_would_spring_without_weights_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Trap()))
    assert (tmp_path / "trapped").exists()


@pytest.mark.parametrize("name", ["small_resnet", "resnet18"])
def test_the_generator_decides_the_tensors(name: str) -> None:
    before = torch.get_rng_state()
    networks = [
        Classifier(backbone(name, mean=IMAGENET_MEAN, std=IMAGENET_STD, rng=rng), 3, rng)
        for rng in (generator(5), generator(5), generator(6))
    ]
    assert torch.equal(torch.get_rng_state(), before)
    same, again, other = (torch.cat([p.flatten() for p in network.parameters()]) for network in networks)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


def test_other_networks_files_are_not_read(tmp_path: Path) -> None:
    """Nobody publishes its file, so that a folder may be meant for a codec or for metrics."""
    assert architecture("small_resnet").find(tmp_path) is None
    (tmp_path / "small_resnet.pth").touch()
    assert architecture("small_resnet").find(tmp_path) == tmp_path / "small_resnet.pth"
    with pytest.raises(FileNotFoundError, match=r"resnet18"):
        architecture("resnet18").find(tmp_path)


class Bomb(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        raise AssertionError("this stage must not run")


def toy(*stages: nn.Module) -> Backbone:
    named = {f"stage{i}": stage for i, stage in enumerate(stages)}
    return Backbone(named, dict.fromkeys(named, 3), mean=(0.5, 0.4, 0.3), std=(0.5, 0.25, 0.2))


def test_images_are_normalised_outside_the_state() -> None:
    network = toy(nn.Identity())
    colours = network(torch.tensor([0.0, 0.65, 0.3])[None, :, None, None])
    assert torch.allclose(colours.flatten(), torch.tensor([-1.0, 1.0, 0.0]), atol=1e-6)
    assert not network.state_dict()


def test_features_run_nothing_after_their_stage() -> None:
    network = toy(nn.Identity(), nn.Identity(), Bomb())
    assert network.features(pictures(2, 3, 4, 4), "stage1").shape == (2, 3, 4, 4)
    with pytest.raises(AssertionError, match="must not run"):
        network(pictures(2, 3, 4, 4))


def test_a_hook_after_a_stage_may_change_the_batch() -> None:
    network = build("small_resnet").eval()
    images = pictures(3, 3, 32, 32)
    seen: list[tuple[int, ...]] = []

    def double(features: Tensor) -> Tensor:
        seen.append(tuple(features.shape))
        return torch.cat([features, 0 * features])

    with torch.no_grad():
        out = network(images, {"layer3": double, "layer1": double})
        by_hand = double(network.body["layer1"](network.features(images, "stem")))
        by_hand = double(network.body["layer3"](network.body["layer2"](by_hand)))
        assert torch.equal(out, network.body["layer4"](by_hand))
    assert seen[:2] == [(3, 32, 16, 16), (6, 64, 4, 4)]
    assert len(out) == 12


def test_a_classifier_is_the_head_of_the_mean_of_the_map() -> None:
    network = Classifier(build("small_resnet"), 10, generator(1)).eval()
    images = pictures(2, 3, 32, 32)
    with torch.no_grad():
        pooled = network.backbone(images).sum((2, 3)) / 16
        expected = pooled @ network.head.weight.T + network.head.bias
        assert torch.allclose(network(images), expected, atol=1e-5)
        assert torch.allclose(network.embedding(images), pooled, atol=1e-5)


def test_unknown_names_list_the_known_ones() -> None:
    network = build("small_resnet")
    told = "stem, layer1, layer2, layer3, layer4, stride2, stride4, stride8; got 'layer9'"
    with pytest.raises(ValueError, match=told):
        network.features(pictures(1, 3, 32, 32), "layer9")
    with pytest.raises(ValueError, match=told):
        network(pictures(1, 3, 32, 32), {"layer9": torch.relu})
    with pytest.raises(ValueError, match="resnet50, alexnet, densenet121, efficientnet_lite0, timm:NAME; got 'vgg'"):
        build("vgg")


def test_too_small_images_are_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As AlexNet's third pooling layer on 8 pixels, whose 61 million weights would be drawn for nothing here."""
    monkeypatch.setattr(config, "backbone", lambda name, **options: toy(nn.MaxPool2d(4), nn.MaxPool2d(3)))
    for number in range(120):
        folder = tmp_path / "data" / "abc"[number % 3] / "xy"[number // 3 % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (2 * number, 9, 99)).save(folder / f"{number}.png")
    out = tmp_path / "out"
    words = "--method fedavg --preset quick --clients 2 --attack none --image-size 8 --dataset folder"
    assert main([*words.split(), "--data-root", str(tmp_path / "data"), "--out", str(out)]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "audit: " in line]
    assert line.startswith("fdgpriv audit: --backbone: small_resnet cannot be computed on images of 8 x 8 pixels (")
    assert line.endswith("); want a larger --image-size or another --backbone")
    assert not out.exists()


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 3, 10), nn.AvgPool2d(9), nn.ReflectionPad2d(8)])
def test_any_layer_may_not_fit_small_images(layer: nn.Module) -> None:
    network = toy(layer)
    with pytest.raises(ValueError, match=r"any cannot be computed on images of 8 x 8 pixels") as caught:
        check_image_size("any", network, 8)
    assert "\n" not in str(caught.value)
    check_image_size("any", network, 10)
    assert all(not parameter.is_meta for parameter in network.parameters())
