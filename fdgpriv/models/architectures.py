"""The backbones by name, and those of torchvision cut into the layers stem, layer1, ..., layer4."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.models.architecture import Architecture, Stages, published, stem
from fdgpriv.models.checkpoints import find_weights, load_exactly
from fdgpriv.models.efficientnet_lite import EfficientNetLite
from fdgpriv.models.names import TIMM, check_backbone
from fdgpriv.models.state_dicts import read_tensors
from fdgpriv.models.timm_networks import TimmNetwork
from fdgpriv.utils.torchvision_import import torchvision


class ResidualBlock(nn.Module):
    """Residual block of two 3x3 convolutions, without in-place operations. He et al., CVPR 2016."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Tensor:
        """Maps (B, inputs, H, W) to (B, outputs, H / stride, W / stride)."""
        hidden = torch.relu(self.bn1(self.conv1(features)))
        return torch.relu(self.bn2(self.conv2(hidden)) + self.shortcut(features))


class SmallResNet(Architecture):
    """For training from scratch on 32 px images: maps of 16, 16, 8, 4 and 4 px, one residual block per stage."""

    files = ("small_resnet.safetensors", "small_resnet.pth")
    source = "is not published: save the state dict of your own `small_resnet`"
    widths: ClassVar[dict[str, int]] = {"stem": 32, "layer1": 32, "layer2": 48, "layer3": 64, "layer4": 96}
    strides: ClassVar[dict[str, int]] = {"layer1": 1, "layer2": 2, "layer3": 2, "layer4": 1}

    def find(self, weights: Path | None) -> Path | None:
        """None for a folder without this file: it is not published, so the folder may have other networks' files only."""
        if weights is None or not weights.is_dir():
            return super().find(weights)
        return next((weights / file for file in self.files if (weights / file).is_file()), None)

    def build(self) -> nn.Module:
        width = self.widths["stem"]
        first = nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        stages: dict[str, nn.Module] = {"stem": first}
        for name, stride in self.strides.items():
            stages[name] = ResidualBlock(width, self.widths[name], stride)
            width = self.widths[name]
        return nn.ModuleDict(stages)

    def cut(self, network: nn.Module, small_input: bool) -> Stages:
        return dict(network.named_children()), self.widths


@dataclass(frozen=True)
class ResNet(Architecture):
    """torchvision's ResNet-18 or -50."""

    name: str
    files: tuple[str, ...]
    source: str
    expansion: int

    def build(self) -> nn.Module:
        network: nn.Module = getattr(torchvision.models, self.name)()
        network.fc = nn.Identity()
        return network

    def cut(self, network: nn.Module, small_input: bool) -> Stages:
        part = dict(network.named_children())
        first = [part["conv1"], part["bn1"], part["relu"], part["maxpool"]]
        stages = {f"layer{i}": part[f"layer{i}"] for i in range(1, 5)}
        channels = {f"layer{i}": 32 * 2**i * self.expansion for i in range(1, 5)}
        return {"stem": stem(first, small_input), **stages}, {"stem": 64, **channels}


@dataclass(frozen=True)
class AlexNet(Architecture):
    """torchvision's AlexNet: one convolution per stage; its hidden fully connected layers are optional."""

    files: tuple[str, ...]
    source: str

    def build(self) -> nn.Module:
        network: nn.Module = torchvision.models.alexnet()
        network.classifier = nn.Identity()
        return network

    def cut(self, network: nn.Module, small_input: bool) -> Stages:
        layers = list(network.get_submodule("features").children())
        starts = {"layer1": (3, 6), "layer2": (6, 8), "layer3": (8, 10), "layer4": (10, 13)}
        stages = {name: nn.Sequential(*layers[start:end]) for name, (start, end) in starts.items()}
        channels = {"stem": 64, "layer1": 192, "layer2": 384, "layer3": 256, "layer4": 256}
        return {"stem": stem(layers[:3], small_input), **stages}, channels

    def fully_connected(self, weights: Path | None) -> tuple[nn.Module, nn.Linear]:
        """fc6 and fc7 with 4,096 units each, without dropout."""
        layers = {"classifier.1": nn.Linear(256 * 6 * 6, 4096), "classifier.4": nn.Linear(4096, 4096)}
        if weights is not None:
            path = find_weights(self.files, self.source, weights)
            names = [f"{name}.{leaf}" for name in layers for leaf in ("weight", "bias")]
            state = read_tensors(path, names)
            if missing := [name for name in names if name not in state]:
                raise ValueError(f"want fully connected layers of alexnet in {path}, got no {', '.join(missing)}")
            for name, layer in layers.items():
                load_exactly(layer, {leaf: state[f"{name}.{leaf}"] for leaf in ("weight", "bias")}, name, path)
        fc6, fc7 = layers.values()
        return nn.Sequential(nn.AdaptiveAvgPool2d(6), nn.Flatten(), fc6, nn.ReLU()), fc7


@dataclass(frozen=True)
class DenseNet(Architecture):
    """torchvision's DenseNet-121: a stage is a dense block and the transition after it."""

    files: tuple[str, ...]
    source: str

    def build(self) -> nn.Module:
        network: nn.Module = torchvision.models.densenet121()
        network.classifier = nn.Identity()
        return network

    def cut(self, network: nn.Module, small_input: bool) -> Stages:
        part = dict(network.get_submodule("features").named_children())
        first = [part["conv0"], part["norm0"], part["relu0"], part["pool0"]]
        stages: dict[str, nn.Module] = {"stem": stem(first, small_input)}
        for i in range(1, 4):
            stages[f"layer{i}"] = nn.Sequential(part[f"denseblock{i}"], part[f"transition{i}"])
        stages["layer4"] = nn.Sequential(part["denseblock4"], part["norm5"], nn.ReLU())
        return stages, {"stem": 64, "layer1": 128, "layer2": 256, "layer3": 512, "layer4": 1024}


ARCHITECTURES: dict[str, Architecture] = {
    "small_resnet": SmallResNet(),
    "resnet18": ResNet("resnet18", *published("resnet18-f37072fd.pth"), expansion=1),
    "resnet50": ResNet("resnet50", *published("resnet50-0676ba61.pth"), expansion=4),
    "alexnet": AlexNet(*published("alexnet-owt-7be5be79.pth")),
    "densenet121": DenseNet(*published("densenet121-a639ec97.pth")),
    "efficientnet_lite0": EfficientNetLite(),
}


def architecture(name: str) -> Architecture:
    """The architecture of a backbone's name, one of `names.BACKBONES` or ``timm:NAME``."""
    if name.startswith(TIMM):
        return TimmNetwork(name.removeprefix(TIMM))
    check_backbone(name)
    return ARCHITECTURES[name]
