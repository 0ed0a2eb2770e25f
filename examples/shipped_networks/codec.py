"""Trains the offline style codec in two phases.

Phase 1 trains encoder and decoder on reconstruction, with two auxiliary classifiers: the digit from instance-normalised
features, and the look from the style alone. Then the encoder is scaled so that each channel's std is 1 (AdaIN's VGG has
means of 1) and frozen. Phase 2 trains the decoder on AdaIN's content and style losses and on reconstruction.
Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, adain
from fdgpriv.models.backbone import drawing_from
from fdgpriv.models.style_codec import DIGITS_CODEC, StyleCodec, small_codec
from shipped_networks.images import LOOKS, SyntheticDigits
from shipped_networks.pen import SIDE
from shipped_networks.recipe import Descent, Recipe


@dataclass(frozen=True)
class CodecRecipe(Recipe):
    """Settings of the codec.

    Attributes:
        batch: Images per step.
        redraw_steps: Steps of phase 1.
        redraw_lr: Adam's initial learning rate in phase 1.
        reading: Weight of the classification losses in phase 1.
        style_steps: Steps of phase 2.
        style_lr: Adam's initial learning rate in phase 2.
        style: Weight of the style loss in phase 2; the content loss has weight 1.
        redrawing: Weight of the reconstruction loss in phase 2.
    """

    batch: int = 16
    redraw_steps: int = 2500
    redraw_lr: float = 3e-3
    reading: float = 0.003
    style_steps: int = 500
    style_lr: float = 6e-4
    style: float = 10.0
    redrawing: float = 2000.0


def train_codec(made: SyntheticDigits, recipe: CodecRecipe, rng: torch.Generator) -> StyleCodec:
    """The trained codec, in evaluation mode."""
    with drawing_from(rng):
        codec = small_codec(DIGITS_CODEC)
        for layer in codec.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, a=0.2)
        channels = codec.encode(torch.zeros(1, 3, SIDE, SIDE)).shape[1]
        digit = nn.Linear(channels * (SIDE // 4) ** 2, 10)
        look = nn.Linear(2 * channels, len(LOOKS))
    readers = [*codec.parameters(), *digit.parameters(), *look.parameters()]
    descent = Descent(readers, recipe.redraw_lr, recipe.redraw_steps)
    for _ in range(recipe.redraw_steps):
        batch = torch.randint(len(made.labels), (recipe.batch,), generator=rng)
        images = made.images[batch]
        features = codec.encode(images)
        style = torch.cat(PER_IMAGE_UNBIASED(features), dim=1)
        bare = functional.instance_norm(features)
        reading = functional.cross_entropy(digit(bare.flatten(1)), made.labels[batch])
        reading = reading + functional.cross_entropy(look(style), made.looks[batch])
        descent.step(functional.mse_loss(codec.decode(features), images) + recipe.reading * reading)
    normalise(codec, made.images[:1600])
    codec.encoder.requires_grad_(False)
    descent = Descent(list(codec.decoder.parameters()), recipe.style_lr, recipe.style_steps)
    for _ in range(recipe.style_steps):
        content, other = torch.randint(len(made.labels), (2, recipe.batch), generator=rng)
        descent.step(style_loss(codec, made.images[content], made.images[other], recipe))
    return codec.eval()


def style_loss(codec: StyleCodec, content: Tensor, other: Tensor, recipe: CodecRecipe) -> Tensor:
    """AdaIN's content and style losses of `content` in the style of `other`, both (N, 3, H, W), and reconstruction."""
    with torch.no_grad():
        features, wanted = codec.encode(content), codec.stages(other)
        target = adain(features, *PER_IMAGE_UNBIASED(wanted[-1]), PER_IMAGE_UNBIASED)
    found = codec.stages(codec.decode(target))
    loss = functional.mse_loss(found[-1], target)
    for ours, theirs in zip(found, wanted, strict=True):
        for a, b in zip(PER_IMAGE_UNBIASED(ours), PER_IMAGE_UNBIASED(theirs), strict=True):
            loss = loss + recipe.style * functional.mse_loss(a, b)
    return loss + recipe.redrawing * functional.mse_loss(codec.decode(features), content)


@torch.no_grad()
def normalise(codec: StyleCodec, images: Tensor) -> None:
    """Scales each channel's activation to std 1 over `images` (N, 3, H, W) and compensates in the next layer.

    The std of a channel is clamped from below to a tenth of its layer's median.
    """
    layers = [*codec.encoder, *codec.decoder]
    features, scale = images, torch.ones(3)
    for index, layer in enumerate(layers):
        if isinstance(layer, nn.Conv2d):
            layer.weight.mul_(scale[:, None, None])
            if index >= len(codec.encoder):
                return
            std = layers[index + 1](layer(features)).std(dim=(0, 2, 3))
            scale = std.clamp_min(0.1 * float(std.median()))
            layer.weight.div_(scale[:, None, None, None])
            assert layer.bias is not None
            layer.bias.div_(scale)
        features = layer(features)


@torch.no_grad()
def redraw_figures(codec: StyleCodec, held_out: SyntheticDigits) -> dict[str, float]:
    """Reconstruction PSNR in dB of held-out images, overall and by look."""
    error = (codec(held_out.images).clamp(0, 1) - held_out.images).square().mean(dim=(1, 2, 3))
    psnr = -10 * error.log10()
    return {"psnr": float(psnr.mean())} | {
        f"psnr, {look}": float(psnr[held_out.looks == index].mean()) for index, look in enumerate(LOOKS)
    }
