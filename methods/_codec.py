"""The frozen style encoder and decoder that all clients of a run hold, loaded once for all of them."""

from functools import cache
from pathlib import Path

import torch

from fdgpriv.models.adain_vgg import adain_vgg
from fdgpriv.models.style_codec import StyleCodec, digits_codec


@cache
def codec_on(device: torch.device, name: str, weights: Path | None) -> StyleCodec:
    """AdaIN's codec for ``adain_vgg``, from its two files in the folder `weights`; for any other name our own."""
    made = adain_vgg(weights, weights) if name == "adain_vgg" else digits_codec()
    return made.to(device)
