"""Style codecs: an encoder whose channel statistics are the style, and a decoder back to images.

Reference: Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017.
"""

from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn

from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, adain
from fdgpriv.models.shipped import load_shipped
from fdgpriv.utils.global_rng import global_draws

DIGITS_CODEC = "digits-codec-1"
_CHANNELS = (16, 32, 64)  # of the maps of 32, 16 and 8 px


class StyleCodec(nn.Module):
    """An encoder and its decoder, under the name by which reports call them.

    Args:
        name: What reports say.
        encoder: Images (N, 3, H, W) in [0, 1] to features (N, C, h, w), child by child.
        decoder: The mirror of `encoder`, linear at its end.
        stages: How many children of `encoder` make up each stage; the last stage ends where the encoder does.
    """

    def __init__(self, name: str, encoder: nn.Sequential, decoder: nn.Sequential, stages: tuple[int, ...]) -> None:
        super().__init__()
        if not stages or stages[-1] != len(encoder) or any(a >= b for a, b in pairwise((0, *stages))):
            raise ValueError(f"want rising ends of stages up to {len(encoder)}, got {stages}")
        self.name = name
        self.encoder = encoder
        self.decoder = decoder
        self.ends = stages

    @property
    def channels(self) -> int:
        """C of the encoder's features."""
        return [part.out_channels for part in self.encoder.modules() if isinstance(part, nn.Conv2d)][-1]

    def stages(self, images: Tensor) -> list[Tensor]:
        """The features at the end of each stage, the last being `encode(images)`; for perceptual and style losses."""
        found, features = [], images
        for begin, end in pairwise((0, *self.ends)):
            features = self.encoder[begin:end](features)
            found.append(features)
        return found

    def encode(self, images: Tensor) -> Tensor:
        """Features (N, C, h, w) of images (N, 3, H, W) in [0, 1]."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"want images (N, 3, H, W), got {tuple(images.shape)}")
        features: Tensor = self.encoder(images)
        return features

    def decode(self, features: Tensor) -> Tensor:
        """Images (N, 3, H, W) from features (N, C, h, w), linear and so not held to [0, 1]."""
        images: Tensor = self.decoder(features)
        return images

    def stylise(self, images: Tensor, mean: Tensor, std: Tensor, alpha: float = 1.0) -> Tensor:
        """The images (N, 3, H, W) in [0, 1], redrawn in another style and clamped to [0, 1].

        Args:
            images: The content, in [0, 1].
            mean: (C,) or (N, C), of the style's features.
            std: (C,) or (N, C), of the style's features.
            alpha: In [0, 1]: how far to go from the content's own style to the other.
        """
        if not 0 <= alpha <= 1:
            raise ValueError(f"want alpha in [0, 1], got {alpha}")
        features = self.encode(images)
        moved = adain(features, mean, std, PER_IMAGE_UNBIASED)
        return self.decode(alpha * moved + (1 - alpha) * features).clamp(0, 1)

    def forward(self, images: Tensor) -> Tensor:
        """The round trip, (N, 3, H, W)."""
        return self.decode(self.encode(images))


def small_codec(name: str) -> StyleCodec:
    """The offline codec's networks with torch's own initialisation: three stages of 16, 32 and 64 channels to stride 4.

    Like VGG, but with strides where VGG pools, as 32 px are too few to throw away three of four; with leaky units, as
    half of 64 channels would die in so short a training; and with sub-pixel convolutions where AdaIN's decoder
    upsamples to the nearest, which redraws thin lines better by 1.7 dB. Images of any side that 4 divides, from 8 px.
    """
    a, b, c = _CHANNELS
    encoder = nn.Sequential(*_conv(3, a), *_conv(a, b, stride=2), *_conv(b, b), *_conv(b, c, stride=2))
    decoder = nn.Sequential(
        *_conv(c, 4 * b), nn.PixelShuffle(2), *_conv(b, b), *_conv(b, 4 * a), nn.PixelShuffle(2),
        nn.ReflectionPad2d(1), nn.Conv2d(a, 3, 3),
    )  # fmt: skip
    return StyleCodec(name, encoder, decoder, stages=(3, 9, 12))


def digits_codec(directory: Path | None = None) -> StyleCodec:
    """The codec that comes with fdgpriv, frozen; `directory` holds another training of it, ours by default."""
    with global_draws():
        codec = small_codec(DIGITS_CODEC)
    load_shipped(codec, DIGITS_CODEC, directory)
    return codec


def _conv(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3, stride), nn.LeakyReLU(0.2)]
