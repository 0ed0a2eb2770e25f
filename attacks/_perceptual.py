"""What a reconstruction is trained to lower: squared error, perceptual distance, or both."""

from collections.abc import Callable

from torch import Tensor, nn

from fdgpriv.metrics.perceptual import FormulaLpips, Perceptual
from fdgpriv.models.style_codec import digits_codec

LOSSES = ("mse", "lpips", "mse+lpips")
Distance = Callable[[Tensor, Tensor], Tensor]


def distance(name: str) -> Distance:
    """The loss called `name`, of images and truth (B, 3, H, W) near [0, 1], as one number.

    The perceptual part compares features of the style encoder, so that the network that scores stays unseen.
    """
    if name not in LOSSES:
        raise ValueError(f"want a loss of {', '.join(LOSSES)}; got {name!r}")
    perceptual = None if name == "mse" else _style_encoder_distance()

    def loss(images: Tensor, truth: Tensor) -> Tensor:
        squared = nn.functional.mse_loss(images, truth)
        if perceptual is None:
            return squared
        look: Tensor = perceptual(2 * images - 1, 2 * truth - 1).mean()
        return look if name == "lpips" else squared + look

    return loss


def _style_encoder_distance() -> Perceptual:
    codec = digits_codec()
    for parameter in codec.parameters():
        parameter.requires_grad_(False)
    return FormulaLpips("style-encoder", codec.stages)
