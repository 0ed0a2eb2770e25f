"""Backbones: image networks divided into named stages, with access to the features between stages."""

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from fdgpriv.models.architectures import ARCHITECTURES
from fdgpriv.models.checkpoints import load_backbone
from fdgpriv.models.names import BACKBONES
from fdgpriv.utils.global_rng import drawing_from as drawing_from

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

After = Mapping[str, Callable[[Tensor], Tensor]]


class Backbone(nn.Module):
    """Normalises images (B, 3, H, W) in [0, 1] and applies the stages in order.

    The mean and std of the normalisation are not buffers, so the state dict contains only the network's tensors.

    Args:
        stages: The network, stage by stage; each takes the output of the one before.
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
        for name in (last, *after):
            if name not in self.channels:
                raise ValueError(f"want a stage of {', '.join(self.stages)}; got {name!r}")
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
        """The head's input (B, C) for images (B, 3, H, W) in [0, 1]."""
        pooled: Tensor = self.backbone(images, after).mean(dim=(2, 3))
        return pooled

    def forward(self, images: Tensor, after: After | None = None) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W) in [0, 1]; `after` as in `Backbone.forward`."""
        logits: Tensor = self.head(self.embedding(images, after))
        return logits


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
        name: One of `BACKBONES`. All have the stages stem, layer1, ..., layer4.
        mean: Of each colour channel, subtracted from images in [0, 1].
        std: Of each colour channel, divided by.
        rng: For the initialisation; the same state gives the same tensors.
        weights: A file, or a folder that is searched before torch's checkpoints; None initialises from `rng`.
        small_input: For images under 64 px: a stem with stride 1 and without pooling, with the same tensors. No effect
            on `small_resnet`, which is made for 32 px.
    """
    if name not in ARCHITECTURES:
        raise ValueError(f"want a backbone of {', '.join(BACKBONES)}; got {name!r}")
    architecture = ARCHITECTURES[name]
    with drawing_from(rng):
        network = architecture.build()
    if weights is not None:
        load_backbone(network, architecture.files, architecture.source, Path(weights))
    stages, channels = architecture.cut(network, small_input)
    layers = partial(architecture.fully_connected, None if weights is None else Path(weights))
    return Backbone(stages, channels, mean, std, layers)
