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
PHOTO_CODEC = "photo-codec-1"
_CHANNELS = (16, 32, 64)  # of the maps of 32, 16 and 8 px
_PHOTO_CHANNELS = (48, 64, 96)  # at strides 2, 2 and 4


class StyleCodec(nn.Module):
    """An encoder with its decoder.

    Args:
        name: Name in reports.
        encoder: Layers from images (N, 3, H, W) in [0, 1] to features (N, C, h, w).
        decoder: The mirror of `encoder`, with a linear output.
        stages: Indices of layers of `encoder` after which stages end, ascending, up to its length.
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
        """The features after each stage, for perceptual and style losses; the last equals `encode(images)`."""
        features_by_stage, features = [], images
        for begin, end in pairwise((0, *self.ends)):
            features = self.encoder[begin:end](features)
            features_by_stage.append(features)
        return features_by_stage

    def encode(self, images: Tensor) -> Tensor:
        """Features (N, C, h, w) of images (N, 3, H, W) in [0, 1]."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"want images (N, 3, H, W), got {tuple(images.shape)}")
        features: Tensor = self.encoder(images)
        return features

    def decode(self, features: Tensor) -> Tensor:
        """Images (N, 3, H, W), not clamped to [0, 1], from features (N, C, h, w)."""
        images: Tensor = self.decoder(features)
        return images

    def stylise(self, images: Tensor, mean: Tensor, std: Tensor, alpha: float = 1.0) -> Tensor:
        """The images (N, 3, H, W) transferred to another style by AdaIN, clamped to [0, 1].

        Args:
            images: The content, in [0, 1].
            mean: (C,) or (N, C), of the style's features.
            std: (C,) or (N, C), of the style's features.
            alpha: Strength of the transfer in [0, 1]: weight of the stylised features.
        """
        if not 0 <= alpha <= 1:
            raise ValueError(f"want alpha in [0, 1], got {alpha}")
        features = self.encode(images)
        stylised = adain(features, mean, std, PER_IMAGE_UNBIASED)
        return self.decode(alpha * stylised + (1 - alpha) * features).clamp(0, 1)

    def forward(self, images: Tensor) -> Tensor:
        """The decoded encoding of the images, (N, 3, H, W)."""
        return self.decode(self.encode(images))


def small_codec(name: str) -> StyleCodec:
    """The offline codec with torch's default initialisation: three stages of 16, 32 and 64 channels, total stride 4.

    Differs from AdaIN's VGG: strided convolutions in place of pooling, since 32 px are few; leaky ReLU, since half of
    the 64 channels would die in the short training; sub-pixel convolutions in place of nearest upsampling, which improve
    the reconstruction of thin lines by 1.7 dB. The image side must be a multiple of 4, at least 8 px.
    """
    a, b, c = _CHANNELS
    encoder = nn.Sequential(*_conv(3, a), *_conv(a, b, stride=2), *_conv(b, b), *_conv(b, c, stride=2))
    decoder = nn.Sequential(
        *_conv(c, 4 * b), nn.PixelShuffle(2), *_conv(b, b), *_conv(b, 4 * a), nn.PixelShuffle(2),
        nn.ReflectionPad2d(1), nn.Conv2d(a, 3, 3),
    )  # fmt: skip
    return StyleCodec(name, encoder, decoder, stages=(3, 9, 12))


def photo_network(name: str) -> StyleCodec:
    """The codec for photographs with torch's default initialisation: stages of 64 and 96 channels, strides 2 and 4.

    Otherwise as `small_codec`, but no convolution has the images' own resolution, at which most of the time would be
    spent. The image side must be a multiple of 4, at least 8 px.
    """
    a, b, c = _PHOTO_CHANNELS
    encoder = nn.Sequential(*_halving(3, a), *_conv(a, b), *_halving(b, c), *_conv(c, c))
    decoder = nn.Sequential(
        *_conv(c, c), *_conv(c, 4 * a), nn.PixelShuffle(2), *_conv(a, a),
        nn.ReflectionPad2d(1), nn.Conv2d(a, 12, 3), nn.PixelShuffle(2),
    )  # fmt: skip
    return StyleCodec(name, encoder, decoder, stages=(6, 12))


def digits_codec(directory: Path | None = None) -> StyleCodec:
    """The codec shipped with fdgpriv, frozen; `directory` may contain other weights of it."""
    with global_draws():
        codec = small_codec(DIGITS_CODEC)
    load_shipped(codec, DIGITS_CODEC, directory)
    return codec


def photo_codec(directory: Path | None = None) -> StyleCodec:
    """The codec for photographs shipped with fdgpriv, frozen; `directory` may contain other weights of it."""
    with global_draws():
        codec = photo_network(PHOTO_CODEC)
    load_shipped(codec, PHOTO_CODEC, directory)
    return codec


def _conv(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3, stride), nn.LeakyReLU(0.2)]


def _halving(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 4, 2), nn.LeakyReLU(0.2)]
