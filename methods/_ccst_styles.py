"""What CCST calls a style, and how an image is given another's: statistics of features and AdaIN, or amplitudes.

Reference: Chen et al., "Federated Domain Generalization for Image Recognition via Cross-Client Style Transfer", WACV 2023,
Eq. 1-8 and Appendix E.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.moments import POOLED, at_once, styles_of
from fdgpriv.artifacts.style import AmplitudeSpectrum, Outgoing, StyleDraft, StyleStatistics
from fdgpriv.federation.upload import Wanted
from fdgpriv.models.style_codec import StyleCodec

from . import _wanted

Codec = Literal["small", "adain_vgg"]
# By name: what must divide an image's side, and the least side.
CODECS: dict[Codec, tuple[int, int]] = {"small": (4, 8), "adain_vgg": (1, 16)}
_MOST = 64  # images that are encoded at once


class Style(ABC):
    """A notion of style: what of it a client shares, and how an image takes it on."""

    @abstractmethod
    def share(self, client: str, images: Tensor, groups: Sequence[Tensor], granularity: str) -> Outgoing:
        """The style of each group (indices) of images (N, 3, H, W), taken over all its images and pixels."""

    @abstractmethod
    def wanted(self, image_size: int, granularity: str, most: int) -> Wanted:
        """One to `most` of what `share` gives of images of this side."""

    @abstractmethod
    def redraw(self, images: Tensor, styles: Sequence[Artifact], alpha: float) -> Tensor:
        """Each image (N, 3, H, W) in its style, in [0, 1]; `alpha` is how far to go there."""


@dataclass(frozen=True, eq=False)
class FeatureStyle(Style):
    """Mean and std of a codec's deepest features, pooled over images and pixels (Eq. 8); taken on by AdaIN (Eq. 5).

    Attributes:
        codec: Frozen.
        side: To which images are resized before they are encoded; None leaves them as they are.
        device: Where.
    """

    codec: StyleCodec
    side: int | None
    device: torch.device

    @property
    def layers(self) -> tuple[str, ...]:
        """The codec's stages: of AdaIN's VGG, stage4 is relu4_1."""
        return tuple(f"stage{number}" for number in range(1, len(self.codec.ends) + 1))

    def features(self, images: Tensor, layer: str) -> Tensor:
        """Features (N, C, h, w) of images (N, 3, H, W) in [0, 1] at this stage."""
        if layer not in self.layers:
            raise ValueError(f"want a stage of {', '.join(self.layers)}; got {layer!r}")
        encoder = self.codec.encoder[: self.codec.ends[self.layers.index(layer)]]
        parts = images.split(self._at_once(images))
        return torch.cat([encoder(resized(part.to(self.device), self.side)).cpu() for part in parts])

    def share(self, client: str, images: Tensor, groups: Sequence[Tensor], granularity: str) -> Outgoing:
        layer = self.layers[-1]
        moments = styles_of(images[torch.cat(list(groups))], lambda part: self.features(part, layer), POOLED)
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

    def wanted(self, image_size: int, granularity: str, most: int) -> Wanted:
        return _wanted.style(self.codec.channels, self.layers[-1], POOLED.name, granularity, most=most)

    @torch.no_grad()
    def redraw(self, images: Tensor, styles: Sequence[Artifact], alpha: float) -> Tensor:
        given = [style for style in styles if isinstance(style, StyleStatistics)]
        mean = torch.stack([style.mean for style in given])
        std = torch.stack([style.std for style in given])
        side = images.shape[-1]
        drawn = []
        parts = (rows.split(self._at_once(images)) for rows in (images, mean, std))
        for part, to_mean, to_std in zip(*parts, strict=True):
            content = resized(part.to(self.device), self.side)
            made = self.codec.stylise(content, to_mean.to(self.device), to_std.to(self.device), alpha)
            drawn.append(resized(made, side).clamp(0, 1).cpu())
        return torch.cat(drawn)

    def _at_once(self, images: Tensor) -> int:
        side = self.side or images.shape[-1]
        return at_once(side, side, _MOST)


@dataclass(frozen=True)
class AmplitudeStyle(Style):
    """The amplitude of an image's spectrum, averaged over images; taken on by exchange, the phase staying (Appendix E).

    Attributes:
        window: Half the side of the square of low frequencies that is exchanged, as a share of the image's side: 0 is
            frequency 0 alone, which is the mean colour; 0.5 is all.
    """

    window: float

    def share(self, client: str, images: Tensor, groups: Sequence[Tensor], granularity: str) -> Outgoing:
        shared = []
        for index in groups:
            mean = torch.zeros(images.shape[1:], dtype=torch.float64)
            for part in index.split(64):
                mean += torch.fft.fft2(images[part].double()).abs().sum(0) / len(index)
            shared.append(AmplitudeSpectrum(client=client, round=0, amplitude=mean.float(), granularity=granularity))
        return shared

    def wanted(self, image_size: int, granularity: str, most: int) -> Wanted:
        zeros = torch.zeros(3, image_size, image_size)
        return Wanted(AmplitudeSpectrum(client=SERVER, round=0, amplitude=zeros, granularity=granularity), most=most)

    def redraw(self, images: Tensor, styles: Sequence[Artifact], alpha: float) -> Tensor:
        given = torch.stack([style.amplitude for style in styles if isinstance(style, AmplitudeSpectrum)])
        own = torch.fft.fft2(images)
        low = self._low(images.shape[-2])[:, None] & self._low(images.shape[-1])
        amplitude = torch.where(low, alpha * given + (1 - alpha) * own.abs(), own.abs())
        made: Tensor = torch.fft.ifft2(torch.polar(amplitude.clamp_min(0), own.angle())).real
        return made.clamp(0, 1)

    def _low(self, side: int) -> Tensor:
        """(side,): which frequencies are low."""
        low: Tensor = torch.fft.fftfreq(side, d=1 / side).abs() <= int(self.window * side + 1e-6)
        return low


def resized(images: Tensor, side: int | None) -> Tensor:
    """Images (N, 3, H, W) at side x side; as they are where they have it or None is wanted."""
    if side is None or images.shape[-2:] == (side, side):
        return images
    return nn.functional.interpolate(images, size=(side, side), mode="bilinear", antialias=True)
