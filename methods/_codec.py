"""Loads the frozen public style codec (encoder and decoder) once for all clients of a run."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from fdgpriv.federation.disclosure import StyleSource
from fdgpriv.models.adain_vgg import adain_vgg
from fdgpriv.models.style_codec import StyleCodec, digits_codec, photo_codec

Codec = Literal["digits", "photo", "adain_vgg"]
LEAST_SIDE: dict[Codec, int] = {"digits": 8, "photo": 8, "adain_vgg": 16}  # pixels of an image
STRIDE: dict[Codec, int] = {"digits": 4, "photo": 4, "adain_vgg": 1}  # decoded images have a multiple of it as side


@cache
def codec_on(device: torch.device, name: Codec, weights: Path | None) -> StyleCodec:
    """The codec of this name: ``adain_vgg`` from its two files in the folder `weights`; the others are fdgpriv's."""
    if name == "adain_vgg":
        return adain_vgg(weights, weights).to(device)
    return (photo_codec() if name == "photo" else digits_codec()).to(device)


class Encoder(Protocol):
    """A frozen encoder with named layers."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Layer names, from input to output."""

    def features(self, images: Tensor, layer: str) -> Tensor:
        """Features (B, C, h, w) of images (B, 3, H, W)."""


class EncodedStyles(StyleSource):
    """Styles computed from the features of a frozen public encoder.

    Args:
        encoder: Builds the encoder for a given global model.
    """

    frozen_encoder = True

    def __init__(self, encoder: Callable[[nn.Module], Encoder]) -> None:
        self.encoder = encoder

    def layers(self, model: nn.Module) -> tuple[str, ...]:
        return self.encoder(model).layers

    def features(self, model: nn.Module, layer: str) -> Callable[[Tensor], Tensor]:
        encoder = self.encoder(model)
        return lambda images: encoder.features(images, layer)
