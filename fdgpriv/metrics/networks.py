"""The networks in whose features FID, KID, IS and LPIPS compare images: those at hand that no attack optimises against."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch import Tensor

from fdgpriv.metrics.perceptual import FILES, Perceptual, PublishedLpips, extractor_lpips
from fdgpriv.metrics.realism import resized
from fdgpriv.models import efficientnet_lite
from fdgpriv.models.extractor import (
    DIGITS_EXTRACTOR,
    INCEPTION,
    INCEPTION_FILES,
    Extractor,
    digits_extractor,
    imagenet_extractor,
    inception_extractor,
)

# what a backbone's name contains if it is the network
_NAMES = {"inception": "inception_v3", "alex": "alexnet", "vgg": "vgg16", "pretrained": efficientnet_lite.NAME}


@dataclass(frozen=True)
class MetricNetworks:
    """Which networks compare images.

    Attributes:
        pretrained: Whether EfficientNet-Lite0 with ImageNet weights does, and not the shipped digits extractor.
        inception: The user's file of Inception-v3, which FID, KID and IS then use instead.
        lpips: The user's files of AlexNet (``alex``) and VGG-16 (``vgg``), with which LPIPS is computed as published.
            Without any, the LPIPS formula is applied to the features of the network that `pretrained` says.
    """

    pretrained: bool = False
    inception: Path | None = None
    lpips: tuple[tuple[str, Path], ...] = ()

    @classmethod
    def at_hand(cls, weights: Path | None, trained: str | None = None) -> "MetricNetworks":
        """Those for photographs.

        Args:
            weights: The user's folder, which may contain torchvision's files of Inception-v3, AlexNet and VGG-16.
            trained: The backbone that attacks optimise against; a network of that name compares nothing.
        """

        def usable(network: str) -> bool:
            return trained is None or _NAMES[network] not in trained

        def of_user(network: str, files: tuple[str, ...]) -> Path | None:
            if weights is None or not usable(network):
                return None
            return next((weights / file for file in files if (weights / file).is_file()), None)

        lpips = {network: of_user(network, (file,)) for network, file in FILES.items()}
        return cls(
            efficientnet_lite.installed() and usable("pretrained"),
            of_user("inception", INCEPTION_FILES),
            tuple((network, path) for network, path in lpips.items() if path is not None),
        )

    @property
    def extractor(self) -> Extractor:
        """Of FID, KID and IS."""
        return _offline(self.pretrained) if self.inception is None else _inception(self.inception)

    @property
    def distances(self) -> tuple[Perceptual, ...]:
        """The perceptual distances, the first one for scoring; AlexNet's before VGG-16's."""
        return tuple(_published(*one) for one in self.lpips) or (_formula(self.pretrained),)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all that compare, without their weights' hashes; none is loaded."""
        offline = efficientnet_lite.NAME if self.pretrained else DIGITS_EXTRACTOR
        return (offline if self.inception is None else INCEPTION, *(f"lpips[{name}]" for name, _ in self.lpips))

    @property
    def of_user(self) -> bool:
        """Whether any is from the user's files."""
        return self.inception is not None or bool(self.lpips)

    def load(self) -> None:
        """Loads them; a ValueError names a file that has other tensors than its network's."""
        _ = self.extractor, self.distances

    def fitted(self, images: Tensor) -> Tensor:
        """Images (N, 3, H, W) at the size that `extractor` sees: of any size, but for the digits extractor 32 px."""
        return images if self.pretrained or self.inception is not None else resized(images)


SHIPPED = MetricNetworks()  # the digits extractor alone


@cache
def _offline(pretrained: bool) -> Extractor:
    return imagenet_extractor() if pretrained else digits_extractor()


@cache
def _inception(file: Path) -> Extractor:
    return inception_extractor(file)


@cache
def _formula(pretrained: bool) -> Perceptual:
    return extractor_lpips(_offline(pretrained))


@cache
def _published(network: str, file: Path) -> Perceptual:
    return PublishedLpips(network, file)
