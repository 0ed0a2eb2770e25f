"""Style transfer with a public encoder and decoder: style features, and images stylised by AdaIN.

Reference: Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, Moments, adain, in_parts
from fdgpriv.models.style_codec import StyleCodec


@dataclass(frozen=True, eq=False)
class StyleTransfer:
    """Style features and stylised images of images (B, 3, H, W) in [0, 1].

    Attributes:
        codec: Frozen.
        alpha: Transfer strength in [0, 1].
        colours: Mean and std of the colour channels, as normalised by the classifier.
        released: As in PARDON's released code: the encoder receives normalised images; shared styles are computed before
            its last activation, content statistics after it; decoded images are neither clamped to [0, 1] nor
            normalised for the classifier.
    """

    codec: StyleCodec
    alpha: float
    colours: tuple[tuple[float, ...], tuple[float, ...]]
    released: bool = False

    @property
    def layers(self) -> tuple[str, ...]:
        """Layer names for `features`; styles are shared at the last."""
        return layers(self.codec, self.released)

    def features(self, images: Tensor, layer: str) -> Tensor:
        """Features (B, C, h, w) at `layer`."""
        if layer not in self.layers:
            raise ValueError(f"want a layer of {', '.join(self.layers)}; got {layer!r}")
        end = self.codec.ends[self.layers.index(layer)] - layer.endswith("_linear")
        found: Tensor = self.codec.encoder[:end](self._encoder_input(images))
        return found

    def stylise(self, images: Tensor, style: Moments) -> Tensor:
        """Images (B, 3, H, W) with the style mean and std (C,), in the classifier's input range."""
        return torch.cat([self._stylise(part, style) for part in in_parts(images)])

    def _stylise(self, images: Tensor, style: Moments) -> Tensor:
        if not self.released:
            return _resized(self.codec.stylise(images, *style, self.alpha), images)
        content = self.codec.encode(self._encoder_input(images))
        blend = self.alpha * adain(content, *style, PER_IMAGE_UNBIASED) + (1 - self.alpha) * content
        mean, std = self._colours(images)
        return _resized(self.codec.decode(blend), images) * std + mean

    def _encoder_input(self, images: Tensor) -> Tensor:
        mean, std = self._colours(images)
        return (images - mean) / std if self.released else images

    def _colours(self, images: Tensor) -> Moments:
        mean, std = (images.new_tensor(values)[:, None, None] for values in self.colours)
        return mean, std


def layers(codec: StyleCodec, released: bool) -> tuple[str, ...]:
    """The names of the codec's stages; if `released`, the last ends before its activation."""
    names = [f"stage{i}" for i in range(1, len(codec.ends) + 1)]
    return (*names[:-1], f"{names[-1]}_linear" if released else names[-1])


def _resized(decoded: Tensor, images: Tensor) -> Tensor:
    """Decoded images, interpolated to the size of `images` if it differs."""
    if decoded.shape == images.shape:
        return decoded
    return interpolate(decoded, images.shape[-2:], mode="bilinear", align_corners=False)
