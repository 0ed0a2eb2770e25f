"""The networks in whose features FID, KID, IS and LPIPS compare images: those at hand that no attack optimises against."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch import Tensor

from fdgpriv.metrics.perceptual import FILES, LEAST_SIDE, Perceptual, PublishedLpips, extractor_lpips
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
from fdgpriv.utils.checksum import digest

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

        def of_user(network: str, name: str) -> Path | None:
            given = weights is not None and usable(network) and (weights / name).is_file()
            return weights / name if weights is not None and given else None

        lpips = {network: of_user(network, file) for network, file in FILES.items()}
        return cls(
            efficientnet_lite.installed() and usable("pretrained"),
            of_user("inception", INCEPTION_FILES[0]),
            tuple((network, path) for network, path in lpips.items() if path is not None),
        )

    @property
    def extractor(self) -> Extractor:
        """Of FID, KID and IS."""
        return _offline(self.pretrained) if self.inception is None else _inception(self.inception)

    @property
    def distances(self) -> tuple[Perceptual, ...]:
        """The perceptual distances."""
        return tuple(_published(network, path) for network, path in self.lpips) or (_formula(self.pretrained),)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all that compare, of the user's files with the first eight digits of their SHA-256; none is loaded."""
        offline = efficientnet_lite.NAME if self.pretrained else DIGITS_EXTRACTOR
        extractor = offline if self.inception is None else f"{INCEPTION}:{_hash(self.inception)}"
        published = [f"lpips[{network}]:{_hash(file)}" for network, file in self.lpips]
        return (extractor, *(published or [f"lpips[{offline}]"]))

    @property
    def of_user(self) -> bool:
        """Whether any is from the user's files."""
        return self.inception is not None or bool(self.lpips)

    def check(self, side: int) -> None:
        """Loads the user's files.

        Raises:
            ValueError: A file has other tensors than its network, or images of `side` pixels are too small for it.
        """
        for network, file in self.lpips:
            if side < LEAST_SIDE[network]:
                raise ValueError(
                    f"--weights: {file.name} compares images from {LEAST_SIDE[network]} px on, got {side} px"
                )
        if self.of_user:
            _ = self.extractor, self.distances

    def fitted(self, images: Tensor) -> Tensor:
        """Images (N, 3, H, W) at the size that `extractor` sees: of any size, but for the digits extractor 32 px."""
        return images if self.pretrained or self.inception is not None else resized(images)


SHIPPED = MetricNetworks()  # the digits extractor alone


@cache
def _hash(file: Path) -> str:
    """The first eight digits of its SHA-256; VGG-16's file has half a gigabyte."""
    return digest(file)[:8]


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
