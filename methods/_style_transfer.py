"""Style transfer by public encoders and decoders, for CCST and PARDON, or by Fourier amplitudes, for CCST and ELCFS.

References: Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017;
Chen et al., "Federated Domain Generalization for Image Recognition via Cross-Client Style Transfer", WACV 2023, Eq. 1-8 and
Appendix E; Nguyen et al., "PARDON".
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, POOLED, Moments, adain, at_once, in_parts, styles_of
from fdgpriv.artifacts.style import AmplitudeSpectrum, ClientReply, StyleDraft, StyleStatistics
from fdgpriv.data.pixels import as_images
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.models.style_codec import StyleCodec

from . import _expected_answers

_BATCH_SIZE = 64  # images encoded at once


class Style(ABC):
    """CCST's style representation: what a client shares, and how a style is applied to an image."""

    @abstractmethod
    def share(self, client: str, pixels: Tensor, groups: Sequence[Tensor], granularity: str) -> ClientReply:
        """The style of each group (indices) of stored images (N, 3, H, W), pooled over the group's images and pixels."""

    @abstractmethod
    def expected(self, image_size: int, granularity: str, most: int) -> ExpectedArtifact:
        """Template of a client's answer: at most `most` styles of images of this side, at least one."""

    @abstractmethod
    def apply(self, images: Tensor, styles: Sequence[Artifact], alpha: float) -> Tensor:
        """Stylised images (N, 3, H, W) in [0, 1], one style per image; `alpha` in [0, 1] is the transfer strength."""


@dataclass(frozen=True, eq=False)
class FeatureStyle(Style):
    """Mean and std of a codec's deepest features, pooled over images and pixels (Eq. 8); applied by AdaIN (Eq. 5).

    Attributes:
        codec: The frozen encoder and decoder.
        side: Side in pixels to which images are resized before encoding; None keeps their size.
        device: Device of the codec.
    """

    codec: StyleCodec
    side: int | None
    device: torch.device

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the codec's stages; for AdaIN's VGG, stage4 is relu4_1."""
        return tuple(f"stage{number}" for number in range(1, len(self.codec.ends) + 1))

    def features(self, images: Tensor, layer: str) -> Tensor:
        """Features (N, C, h, w) of images (N, 3, H, W), stored or in [0, 1], at this stage."""
        if layer not in self.layers:
            raise ValueError(f"want a stage of {', '.join(self.layers)}; got {layer!r}")
        encoder = self.codec.encoder[: self.codec.ends[self.layers.index(layer)]]
        batches = images.split(self._batch_size(images))
        return torch.cat([encoder(resized(as_images(batch.to(self.device)), self.side)).cpu() for batch in batches])

    def share(self, client: str, pixels: Tensor, groups: Sequence[Tensor], granularity: str) -> ClientReply:
        layer = self.layers[-1]
        moments = styles_of(pixels[torch.cat(list(groups))], lambda part: self.features(part, layer), POOLED)
        sizes = [len(index) for index in groups]
        return [
            StyleDraft(
                client=client,
                round=0,
                mean=mean,
                std=std,
                variances=False,
                granularity=granularity,
                at=layer,
                rule=POOLED.name,
            )
            for mean, std in zip(*(moment.split(sizes) for moment in moments), strict=True)
        ]

    def expected(self, image_size: int, granularity: str, most: int) -> ExpectedArtifact:
        return _expected_answers.style(self.codec.channels, self.layers[-1], POOLED.name, granularity, most=most)

    @torch.no_grad()
    def apply(self, images: Tensor, styles: Sequence[Artifact], alpha: float) -> Tensor:
        statistics = [style for style in styles if isinstance(style, StyleStatistics)]
        mean = torch.stack([style.mean for style in statistics])
        std = torch.stack([style.std for style in statistics])
        side = images.shape[-1]
        stylised = []
        parts = (tensors.split(self._batch_size(images)) for tensors in (images, mean, std))
        for batch, mean_of_batch, std_of_batch in zip(*parts, strict=True):
            content = resized(batch.to(self.device), self.side)
            decoded = self.codec.stylise(content, mean_of_batch.to(self.device), std_of_batch.to(self.device), alpha)
            stylised.append(resized(decoded, side).clamp(0, 1).cpu())
        return torch.cat(stylised)

    def _batch_size(self, images: Tensor) -> int:
        side = self.side or images.shape[-1]
        return at_once(side, side, _BATCH_SIZE)


@dataclass(frozen=True)
class AmplitudeStyle(Style):
    """Mean Fourier amplitude over images; applied by replacing an image's amplitude and keeping its phase (Appendix E).

    Attributes:
        window: Half the side of the square of low frequencies exchanged, as a share of the image's side: 0 is frequency 0
            alone (the mean colour), 0.5 is all frequencies.
    """

    window: float

    def share(self, client: str, pixels: Tensor, groups: Sequence[Tensor], granularity: str) -> list[Artifact]:
        shared = list[Artifact]()
        for index in groups:
            mean = torch.zeros(pixels.shape[1:], dtype=torch.float64)
            for batch in index.split(64):
                mean += torch.fft.fft2(as_images(pixels[batch]).double()).abs().sum(0) / len(index)
            shared.append(AmplitudeSpectrum(client=client, round=0, amplitude=mean.float(), granularity=granularity))
        return shared

    def expected(self, image_size: int, granularity: str, most: int) -> ExpectedArtifact:
        zeros = torch.zeros(3, image_size, image_size)
        return ExpectedArtifact(
            AmplitudeSpectrum(client=SERVER, round=0, amplitude=zeros, granularity=granularity), most=most
        )

    def apply(self, images: Tensor, styles: Sequence[Artifact], alpha: float | Tensor) -> Tensor:
        """As for any style; `alpha` may be a strength for each image, (N, 1, 1, 1)."""
        amplitudes = torch.stack([style.amplitude for style in styles if isinstance(style, AmplitudeSpectrum)])
        spectrum = torch.fft.fft2(images)
        is_low = self._low_frequencies(images.shape[-2])[:, None] & self._low_frequencies(images.shape[-1])
        amplitude = torch.where(is_low, alpha * amplitudes + (1 - alpha) * spectrum.abs(), spectrum.abs())
        stylised: Tensor = torch.fft.ifft2(torch.polar(amplitude.clamp_min(0), spectrum.angle())).real
        return stylised.clamp(0, 1)

    def _low_frequencies(self, side: int) -> Tensor:
        """Mask (side,) of the low frequencies."""
        is_low: Tensor = torch.fft.fftfreq(side, d=1 / side).abs() <= int(self.window * side + 1e-6)
        return is_low


def resized(images: Tensor, side: int | None) -> Tensor:
    """Images (N, 3, H, W) resized to side x side; unchanged if they have that size or `side` is None."""
    if side is None or images.shape[-2:] == (side, side):
        return images
    return nn.functional.interpolate(images, size=(side, side), mode="bilinear", antialias=True)


@dataclass(frozen=True, eq=False)
class StyleTransfer:
    """PARDON's style features and stylised images of images (B, 3, H, W) in [0, 1].

    Attributes:
        codec: The frozen encoder and decoder.
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
        return layer_names(self.codec, self.released)

    def features(self, images: Tensor, layer: str) -> Tensor:
        """Features (B, C, h, w) at `layer`."""
        if layer not in self.layers:
            raise ValueError(f"want a layer of {', '.join(self.layers)}; got {layer!r}")
        end = self.codec.ends[self.layers.index(layer)] - layer.endswith("_linear")
        features: Tensor = self.codec.encoder[:end](self._encoder_input(images))
        return features

    def stylise(self, images: Tensor, style: Moments) -> Tensor:
        """Images (B, 3, H, W) with the style mean and std (C,), in the classifier's input range."""
        return torch.cat([self._stylise(part, style) for part in in_parts(images)])

    def _stylise(self, images: Tensor, style: Moments) -> Tensor:
        if not self.released:
            return _at_size_of(self.codec.stylise(images, *style, self.alpha), images)
        content = self.codec.encode(self._encoder_input(images))
        blend = self.alpha * adain(content, *style, PER_IMAGE_UNBIASED) + (1 - self.alpha) * content
        mean, std = self._colours(images)
        return _at_size_of(self.codec.decode(blend), images) * std + mean

    def _encoder_input(self, images: Tensor) -> Tensor:
        mean, std = self._colours(images)
        return (images - mean) / std if self.released else images

    def _colours(self, images: Tensor) -> Moments:
        mean, std = (images.new_tensor(values)[:, None, None] for values in self.colours)
        return mean, std


def layer_names(codec: StyleCodec, released: bool) -> tuple[str, ...]:
    """The names of the codec's stages; if `released`, the last ends before its activation."""
    names = [f"stage{i}" for i in range(1, len(codec.ends) + 1)]
    return (*names[:-1], f"{names[-1]}_linear" if released else names[-1])


def _at_size_of(decoded: Tensor, images: Tensor) -> Tensor:
    """Decoded images, interpolated to the size of `images` if it differs."""
    if decoded.shape == images.shape:
        return decoded
    return nn.functional.interpolate(decoded, images.shape[-2:], mode="bilinear", align_corners=False)
