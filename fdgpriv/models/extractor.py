"""Feature extractors for FID, KID, IS and LPIPS."""

from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fdgpriv.models import efficientnet_lite
from fdgpriv.models.checkpoints import find_weights, load_exactly
from fdgpriv.models.shipped import load_shipped, sha256
from fdgpriv.models.state_dicts import read_tensors
from fdgpriv.utils.global_rng import global_draws
from fdgpriv.utils.torchvision_import import torchvision

DIGITS_EXTRACTOR = "digits-extractor-1"
INCEPTION = "inception-v3"
INCEPTION_FILES = ("inception_v3_google-0cc3c7bd.pth", "inception_v3.safetensors")
INCEPTION_SOURCE = "comes from https://download.pytorch.org/models/inception_v3_google-0cc3c7bd.pth"


class Extractor(nn.Module):
    """A classifier that provides its penultimate features.

    Args:
        name: Part of the names of metrics that use it.
        weights: SHA-256 of its weights, in hexadecimal.
        body: Layers from images (N, 3, H, W) in [0, 1] to features (N, num_features).
        head: Features to logits (N, K).
        stages: Indices of layers of `body` after which stages end; the LPIPS formula compares the maps of the stages.
    """

    def __init__(
        self, name: str, weights: str, body: nn.Sequential, head: nn.Linear, stages: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.name = name
        self.weights = weights
        self.body = body
        self.head = head
        self.ends = stages
        self.num_features = head.in_features
        self.classes = head.out_features

    @property
    def label(self) -> str:
        """Name and the first eight digits of the weights' hash, ``digits-extractor-1:0a1b2c3d``."""
        return f"{self.name}:{self.weights[:8]}"

    def stages(self, images: Tensor) -> list[Tensor]:
        """The maps (N, C, h, w) at the end of each stage, of images (N, 3, H, W) in [0, 1]."""
        maps, features = [], _channels_last(images)
        for begin, end in pairwise((0, *self.ends)):
            features = self.body[begin:end](features)
            maps.append(features)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, num_features) of images (N, 3, H, W) in [0, 1]."""
        features: Tensor = self.body(_channels_last(images))
        return features

    def logits(self, images: Tensor) -> Tensor:
        """Logits (N, K) of images (N, 3, H, W) in [0, 1]."""
        logits: Tensor = self.head(self(images))
        return logits


def _channels_last(images: Tensor) -> Tensor:
    """The images in channels-last memory format, with which CPU convolutions are three times as fast."""
    return images.to(memory_format=torch.channels_last)


class _ForInception(nn.Module):
    """Resizes images in [0, 1] to 299 px and scales them to [-1, 1], the input format of torchvision's weights."""

    def forward(self, images: Tensor) -> Tensor:
        return 2 * functional.interpolate(images, size=(299, 299), mode="bilinear", antialias=True) - 1


class _ForEfficientNet(nn.Module):
    """Normalises images in [0, 1] as EfficientNet-Lite0 expects."""

    def forward(self, images: Tensor) -> Tensor:
        (mean, *_), (std, *_) = efficientnet_lite.COLOURS
        return (images - mean) / std


def small_extractor(weights: str = "") -> Extractor:
    """The offline extractor's network for 32 px, with torch's default initialisation: 64 features, 10 classes."""
    body = nn.Sequential(
        *_conv(3, 24), nn.MaxPool2d(2), *_conv(24, 48), nn.MaxPool2d(2), *_conv(48, 64), nn.MaxPool2d(2), *_conv(64, 64),
        nn.Flatten(), nn.Linear(64 * 16, 64), nn.ReLU(),
    )  # fmt: skip
    return Extractor(DIGITS_EXTRACTOR, weights, body, nn.Linear(64, 10), stages=(3, 7, 11, 15))


def digits_extractor(directory: Path | None = None) -> Extractor:
    """The extractor shipped with fdgpriv, frozen; `directory` may contain other weights of it.

    It was trained on handwritten and typeset digits of 32 px only: metrics based on it are not comparable with published
    values.
    """
    with global_draws():
        extractor = small_extractor()
    extractor.weights = load_shipped(extractor, DIGITS_EXTRACTOR, directory).weights
    return extractor


def imagenet_extractor(weights: Path | None = None) -> Extractor:
    """EfficientNet-Lite0 with ImageNet weights, frozen: 1,280 pooled features, 1,000 classes, images of any size.

    The stages are the maps at strides 2, 4, 8, 16 and 32. Metrics based on it are not comparable with published values,
    which use Inception-v3 and AlexNet.

    Args:
        weights: The user's file or its folder; None uses the optional package's file.

    Raises:
        ValueError: The optional package is not installed.
    """
    network = efficientnet_lite.imagenet_classifier(weights)
    body = nn.Sequential(
        _ForEfficientNet(), network.stem, *network.blocks, network.last, nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    digest = sha256(efficientnet_lite.EfficientNetLite().find(weights))
    extractor = Extractor(efficientnet_lite.NAME, digest, body, network.classifier, stages=(3, 5, 7, 13, 19))
    return extractor.eval().requires_grad_(False)


def inception_extractor(weights: Path | None = None) -> Extractor:
    """torchvision's Inception-v3 with the user's ImageNet weights, frozen: 2,048 features, 1,000 classes.

    Most published FID values use other weights of Inception-v3 (TensorFlow, 2015): the hash in a metric's name
    identifies the weights.

    Args:
        weights: The file or its folder; None searches torch's checkpoints.
    """
    path = find_weights(INCEPTION_FILES, INCEPTION_SOURCE, weights)
    with global_draws():
        network = torchvision.models.inception_v3(weights=None, init_weights=False, aux_logits=True)
    load_exactly(network, read_tensors(path, network.state_dict().keys()), INCEPTION_FILES[0], path)
    body_layers = [child for name, child in network.named_children() if name not in ("AuxLogits", "dropout", "fc")]
    extractor = Extractor(
        INCEPTION, sha256(path), nn.Sequential(_ForInception(), *body_layers, nn.Flatten()), network.fc
    )
    return extractor.eval().requires_grad_(False)


def _conv(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
