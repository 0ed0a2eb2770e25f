"""Chooses the network whose features FID, KID, IS and the LPIPS formula compare: one for digits, one for photographs."""

from functools import cache

from torch import Tensor

from fdgpriv.metrics.perceptual import FormulaLpips, extractor_lpips
from fdgpriv.metrics.realism import resized
from fdgpriv.models.extractor import Extractor, digits_extractor, imagenet_extractor


@cache
def extractor_for(photographs: bool) -> Extractor:
    """EfficientNet-Lite0 with ImageNet weights for photographs; otherwise the shipped digits extractor."""
    return imagenet_extractor() if photographs else digits_extractor()


@cache
def perceptual_distance(photographs: bool) -> FormulaLpips:
    """The LPIPS formula on the features of `extractor_for`."""
    return extractor_lpips(extractor_for(photographs))


def fitted(images: Tensor, photographs: bool) -> Tensor:
    """Images (N, 3, H, W) at the size that `extractor_for` sees: photographs as they are, others resized to 32 px."""
    return images if photographs else resized(images)
