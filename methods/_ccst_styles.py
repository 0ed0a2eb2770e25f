"""Style representations of CCST and their transfer: feature statistics with AdaIN, or Fourier amplitudes.

Reference: Chen et al., "Federated Domain Generalization for Image Recognition via Cross-Client Style Transfer", WACV 2023,
Eq. 1-8 and Appendix E.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.moments import POOLED, at_once, styles_of
from fdgpriv.artifacts.style import AmplitudeSpectrum, ClientReply, StyleDraft, StyleStatistics
from fdgpriv.data.pixels import as_images
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.models.style_codec import StyleCodec

from . import _expected_answers

_MOST = 64  # images encoded at once


class Style(ABC):
    """A style representation: what a client shares, and how a style is applied to an image."""

    @abstractmethod
    def share(self, client: str, pixels: Tensor, groups: Sequence[Tensor], granularity: str) -> ClientReply:
        """The style of each group (indices) of stored images (N, 3, H, W), pooled over the group's images and pixels."""

    @abstractmethod
    def expected(self, image_size: int, granularity: str, most: int) -> ExpectedArtifact:
        """Template of a client's answer: one to `most` styles of images of this side."""

    @abstractmethod
    def apply(self, images: Tensor, styles: Sequence[Artifact], alpha: float) -> Tensor:
        """Stylised images (N, 3, H, W) in [0, 1], one style per image; `alpha` in [0, 1] is the transfer strength."""


@dataclass(frozen=True, eq=False)
class FeatureStyle(Style):
    """Mean and std of a codec's deepest features, pooled over images and pixels (Eq. 8); applied by AdaIN (Eq. 5).

    Attributes:
        codec: Frozen.
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
        parts = images.split(self._at_once(images))
        return torch.cat([encoder(resized(as_images(part.to(self.device)), self.side)).cpu() for part in parts])

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
        given = [style for style in styles if isinstance(style, StyleStatistics)]
        mean = torch.stack([style.mean for style in given])
        std = torch.stack([style.std for style in given])
        side = images.shape[-1]
        stylised = []
        parts = (rows.split(self._at_once(images)) for rows in (images, mean, std))
        for part, to_mean, to_std in zip(*parts, strict=True):
            content = resized(part.to(self.device), self.side)
            decoded = self.codec.stylise(content, to_mean.to(self.device), to_std.to(self.device), alpha)
            stylised.append(resized(decoded, side).clamp(0, 1).cpu())
        return torch.cat(stylised)

    def _at_once(self, images: Tensor) -> int:
        side = self.side or images.shape[-1]
        return at_once(side, side, _MOST)


@dataclass(frozen=True)
class AmplitudeStyle(Style):
    """Mean Fourier amplitude over images; applied by replacing an image's amplitude and keeping its phase (Appendix E).

    Attributes:
        window: Half the side of the square of low frequencies exchanged, as a share of the image's side: 0 is frequency 0
            alone (the mean colour), 0.5 is all frequencies.
    """

    window: float

    def share(self, client: str, pixels: Tensor, groups: Sequence[Tensor], granularity: str) -> ClientReply:
        shared = []
        for index in groups:
            mean = torch.zeros(pixels.shape[1:], dtype=torch.float64)
            for part in index.split(64):
                mean += torch.fft.fft2(as_images(pixels[part]).double()).abs().sum(0) / len(index)
            shared.append(AmplitudeSpectrum(client=client, round=0, amplitude=mean.float(), granularity=granularity))
        return shared

    def expected(self, image_size: int, granularity: str, most: int) -> ExpectedArtifact:
        zeros = torch.zeros(3, image_size, image_size)
        return ExpectedArtifact(
            AmplitudeSpectrum(client=SERVER, round=0, amplitude=zeros, granularity=granularity), most=most
        )

    def apply(self, images: Tensor, styles: Sequence[Artifact], alpha: float) -> Tensor:
        given = torch.stack([style.amplitude for style in styles if isinstance(style, AmplitudeSpectrum)])
        own = torch.fft.fft2(images)
        low = self._low(images.shape[-2])[:, None] & self._low(images.shape[-1])
        amplitude = torch.where(low, alpha * given + (1 - alpha) * own.abs(), own.abs())
        stylised: Tensor = torch.fft.ifft2(torch.polar(amplitude.clamp_min(0), own.angle())).real
        return stylised.clamp(0, 1)

    def _low(self, side: int) -> Tensor:
        """Mask (side,) of the low frequencies."""
        low: Tensor = torch.fft.fftfreq(side, d=1 / side).abs() <= int(self.window * side + 1e-6)
        return low


def resized(images: Tensor, side: int | None) -> Tensor:
    """Images (N, 3, H, W) resized to side x side; unchanged if they have that size or `side` is None."""
    if side is None or images.shape[-2:] == (side, side):
        return images
    return nn.functional.interpolate(images, size=(side, side), mode="bilinear", antialias=True)
