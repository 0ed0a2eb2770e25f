"""The frozen style encoder and decoder that all clients of a run hold, loaded once for all of them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from fdgpriv.federation.disclosure import StyleSource
from fdgpriv.models.adain_vgg import adain_vgg
from fdgpriv.models.style_codec import StyleCodec, digits_codec


@cache
def codec_on(device: torch.device, name: str, weights: Path | None) -> StyleCodec:
    """AdaIN's codec for ``adain_vgg``, from its two files in the folder `weights`; for any other name our own."""
    made = adain_vgg(weights, weights) if name == "adain_vgg" else digits_codec()
    return made.to(device)


class Encoder(Protocol):
    """A frozen encoder with named layers."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Their names, from the image up."""

    def features(self, images: Tensor, layer: str) -> Tensor:
        """Features (B, C, h, w) of images (B, 3, H, W)."""


class EncodedStyles(StyleSource):
    """Styles of a frozen public encoder's features.

    Args:
        encoder: Builds it beside the global model.
    """

    frozen_encoder = True

    def __init__(self, encoder: Callable[[nn.Module], Encoder]) -> None:
        self.encoder = encoder

    def layers(self, model: nn.Module) -> tuple[str, ...]:
        return self.encoder(model).layers

    def features(self, model: nn.Module, layer: str) -> Callable[[Tensor], Tensor]:
        encoder = self.encoder(model)
        return lambda images: encoder.features(images, layer)
