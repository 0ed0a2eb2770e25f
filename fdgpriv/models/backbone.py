"""Backbones: image networks divided into named stages, with access to the features between stages."""

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from fdgpriv.models.architectures import architecture
from fdgpriv.utils.global_rng import drawing_from as drawing_from

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_SIDE = 256  # pixels of the image by which strides are measured

After = Mapping[str, Callable[[Tensor], Tensor]]


class Backbone(nn.Module):
    """Normalises images (B, 3, H, W) in [0, 1] and applies the stages in order.

    A stage is called by its name or by its stride: ``stride8`` is the last stage whose maps have an eighth of the image's
    side.

    The mean and std of the normalisation are not buffers, so the state dict contains only the network's tensors.

    Args:
        stages: The network, stage by stage; each takes the output of the previous stage.
        channels: Channels of each stage's output, with the same names.
        mean: Of each colour channel, subtracted.
        std: Of each colour channel, divided by; positive.
        fully_connected: Builds the hidden fully connected layers of the published network
            (`Architecture.fully_connected`), which are not part of the backbone.
    """

    def __init__(
        self,
        stages: Mapping[str, nn.Module],
        channels: Mapping[str, int],
        mean: Sequence[float],
        std: Sequence[float],
        fully_connected: Callable[[], tuple[nn.Module, nn.Linear] | None] = lambda: None,
    ) -> None:
        super().__init__()
        self.fully_connected = fully_connected
        if not stages or tuple(stages) != tuple(channels):
            raise ValueError(f"want channels for the stages {', '.join(stages)}, got {', '.join(channels)}")
        if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
            raise ValueError(f"want mean and std of 3 numbers, std positive; got {tuple(mean)}, {tuple(std)}")
        self.body = nn.ModuleDict(OrderedDict(stages))
        self.channels: dict[str, int] = dict(channels)
        self.mean = tuple(float(m) for m in mean)
        self.std = tuple(float(s) for s in std)

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return tuple(self.channels)

    @property
    def out_channels(self) -> int:
        """Channels of the last feature map."""
        return self.channels[self.stages[-1]]

    @cached_property
    def strides(self) -> dict[str, int]:
        """By stage, in order: the side of the image over the side of its maps, a power of two."""
        with torch.no_grad():
            features, strides = torch.zeros(1, 3, _SIDE, _SIDE), {}
            for name, stage in deepcopy(self.body).to(features.device).eval().items():
                features = stage(features)
                strides[name] = 2 ** round(math.log2(_SIDE / features.shape[-1]))
        return strides

    def stage(self, name: str) -> str:
        """The stage called `name`, by its name or stride; ValueError with all names if there is none."""
        if name in self.channels:
            return name
        by_stride = {f"stride{stride}": stage for stage, stride in self.strides.items()}
        if name not in by_stride:
            raise ValueError(f"want a layer of {', '.join(self.stages)}, {', '.join(by_stride)}; got {name!r}")
        return by_stride[name]

    def forward(self, images: Tensor, after: After | None = None) -> Tensor:
        """The last feature map (B, C, H, W) of images (B, 3, H, W) in [0, 1].

        Args:
            images: Not yet normalised.
            after: By stage, a function applied to its output; it may change the batch size.
        """
        return self._run(images, self.stages[-1], after or {})

    def features(self, images: Tensor, stage: str) -> Tensor:
        """The output (B, C, H, W) of `stage` for images (B, 3, H, W) in [0, 1]; later stages are not computed."""
        return self._run(images, stage, {})

    def _run(self, images: Tensor, last: str, after: After) -> Tensor:
        last, after = self.stage(last), {self.stage(name): apply for name, apply in after.items()}
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"want images (B, 3, H, W), got {tuple(images.shape)}")
        mean, std = images.new_tensor(self.mean), images.new_tensor(self.std)
        features = (images - mean[:, None, None]) / std[:, None, None]
        for name, stage in self.body.items():
            features = stage(features)
            if name in after:
                features = after[name](features)
            if name == last:
                break
        return features


class Classifier(nn.Module):
    """A backbone with global average pooling and a linear head."""

    def __init__(self, backbone: Backbone, classes: int, rng: torch.Generator) -> None:
        super().__init__()
        if classes < 1:
            raise ValueError(f"want at least one class, got {classes}")
        self.backbone = backbone
        with drawing_from(rng):
            self.head = nn.Linear(backbone.out_channels, classes)

    def embedding(self, images: Tensor, after: After | None = None) -> Tensor:
        """The head's input (B, D) for images (B, 3, H, W) in [0, 1]."""
        return self.embedded(self.backbone(images, after))

    def embedded(self, features: Tensor) -> Tensor:
        """The head's input (B, D) for the last feature map (B, C, H, W); here its mean over positions."""
        return features.mean(dim=(2, 3))

    def classify(self, features: Tensor) -> Tensor:
        """Logits (B, K) of the last feature map (B, C, H, W)."""
        logits: Tensor = self.head(self.embedded(features))
        return logits

    def forward(self, images: Tensor, after: After | None = None) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W) in [0, 1]; `after` as in `Backbone.forward`."""
        return self.classify(self.backbone(images, after))


def backbone(
    name: str,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    rng: torch.Generator,
    weights: str | os.PathLike[str] | None = None,
    small_input: bool = False,
) -> Backbone:
    """The backbone called `name`, initialised from `rng` or with ImageNet weights.

    Args:
        name: One of `BACKBONES`, or ``timm:NAME``. All have the stages stem, layer1, layer2, ...
        mean: Of each colour channel, subtracted from images in [0, 1]; ignored for a network with fixed normalisation.
        std: Of each colour channel, divided by; likewise.
        rng: For the initialisation; the same state gives the same tensors.
        weights: A file, or a folder that is searched before torch's checkpoints; None initialises from `rng`.
            `efficientnet_lite0` takes its weights from the installed package if they are not there.
        small_input: For images under 64 px: a stem with stride 1 and without pooling, with the same tensors. No effect
            on `small_resnet`, which is made for 32 px.
    """
    network_type, weights_path = architecture(name), None if weights is None else Path(weights)
    path = network_type.find(weights_path)
    with drawing_from(rng):
        network = network_type.build()
    if path is not None:
        network_type.load(network, path)
    stages, channels = network_type.cut(network, small_input)
    mean, std = network_type.colours or (mean, std)
    return Backbone(stages, channels, mean, std, partial(network_type.fully_connected, weights_path))


def origin(name: str, weights: str | os.PathLike[str] | None = None) -> str:
    """What `backbone` loads for these arguments, and from where, without local paths."""
    return architecture(name).origin(None if weights is None else Path(weights))
