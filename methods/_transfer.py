"""A public style encoder and decoder in clients' hands: features whose styles are shared, and images redrawn in a style.

Reference: Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, Moments, adain, in_parts
from fdgpriv.models.style_codec import StyleCodec

Codec = Literal["digits", "adain_vgg"]
LEAST_SIDE: dict[Codec, int] = {"digits": 8, "adain_vgg": 16}  # pixels, by codec


@dataclass(frozen=True, eq=False)
class StyleTransfer:
    """Style features and stylised images of images (B, 3, H, W) in [0, 1].

    Attributes:
        codec: Frozen.
        alpha: How far to go from an image's own style to the other.
        colours: Mean and std of each colour channel that the classifier normalises by.
        released: As PARDON's released code has it: the encoder is fed normalised images; styles come from before its
            last activation, the content's from after it; what the decoder draws is neither cut to [0, 1] nor normalised
            for the classifier.
    """

    codec: StyleCodec
    alpha: float
    colours: tuple[tuple[float, ...], tuple[float, ...]]
    released: bool = False

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that `features` knows; styles are shared at the last."""
        return layers(self.codec, self.released)

    def features(self, images: Tensor, layer: str) -> Tensor:
        """Features (B, C, h, w) at `layer`."""
        if layer not in self.layers:
            raise ValueError(f"want a layer of {', '.join(self.layers)}; got {layer!r}")
        end = self.codec.ends[self.layers.index(layer)] - layer.endswith("_linear")
        found: Tensor = self.codec.encoder[:end](self._fed(images))
        return found

    def stylise(self, images: Tensor, style: Moments) -> Tensor:
        """The images (B, 3, H, W) redrawn in a style (C,), such that the classifier may be fed them."""
        return torch.cat([self._stylise(part, style) for part in in_parts(images)])

    def _stylise(self, images: Tensor, style: Moments) -> Tensor:
        if not self.released:
            return _sized(self.codec.stylise(images, *style, self.alpha), images)
        content = self.codec.encode(self._fed(images))
        blend = self.alpha * adain(content, *style, PER_IMAGE_UNBIASED) + (1 - self.alpha) * content
        mean, std = self._colours(images)
        return _sized(self.codec.decode(blend), images) * std + mean

    def _fed(self, images: Tensor) -> Tensor:
        mean, std = self._colours(images)
        return (images - mean) / std if self.released else images

    def _colours(self, images: Tensor) -> Moments:
        mean, std = (images.new_tensor(values)[:, None, None] for values in self.colours)
        return mean, std


def layers(codec: StyleCodec, released: bool) -> tuple[str, ...]:
    """The names of the codec's stages; where `released`, the last one ends before its activation."""
    names = [f"stage{i}" for i in range(1, len(codec.ends) + 1)]
    return (*names[:-1], f"{names[-1]}_linear" if released else names[-1])


def _sized(drawn: Tensor, images: Tensor) -> Tensor:
    """`drawn` at the images' size, where the decoder drew another."""
    if drawn.shape == images.shape:
        return drawn
    return interpolate(drawn, images.shape[-2:], mode="bilinear", align_corners=False)
