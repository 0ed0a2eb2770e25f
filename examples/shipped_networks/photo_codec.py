"""Trains the style codec for photographs: encoder and decoder together, on reconstruction, AdaIN's style and its content.

Both start as an exact copy of the pixels, which keeps the reconstruction sharp in a short training. The style loss is
the distance of the stylised image's re-encoded moments to the wanted ones, relative to the distance before, so that no
scaling of the features lowers it. At the end the encoder is scaled so that each channel's std is 1.
Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, Moments, adain, over_pixels
from fdgpriv.models.backbone import drawing_from
from fdgpriv.models.style_codec import PHOTO_CODEC, StyleCodec, photo_network
from fdgpriv.utils.seeds import generator
from shipped_networks.codec import normalise
from shipped_networks.photographs import HELD_OUT, LOOKS, photo_crops, training_images
from shipped_networks.recipe import Descent, Recipe


@dataclass(frozen=True)
class PhotoCodecRecipe(Recipe):
    """Settings of the codec for photographs.

    Attributes:
        side: Pixels of the training images.
        batch: Images per step; as many give the styles.
        steps: Training steps.
        lr: Adam's initial learning rate.
        redrawing: Weight of the reconstruction loss.
        style: Weight of the style loss.
        content: Weight of the content loss.
        pooled: Share of steps in which styles are pooled over the batch's images of one look.
    """

    images: int = 2400
    held_out: int = 400
    side: int = 48
    batch: int = 8
    steps: int = 500
    lr: float = 1e-3
    redrawing: float = 400.0
    style: float = 2.0
    content: float = 1.0
    pooled: float = 0.5


def train_photo_codec(recipe: PhotoCodecRecipe) -> StyleCodec:
    """The trained codec, in evaluation mode."""
    images, looks = training_images(recipe.images, recipe.side, generator(recipe.seed, 0))
    by_look = [images[looks == look] for look in range(len(LOOKS))]
    rng = generator(recipe.seed, 2)
    with drawing_from(rng):
        codec = photo_network(PHOTO_CODEC)
        pass_pixels(codec)
    descent = Descent(list(codec.parameters()), recipe.lr, recipe.steps)
    for _ in range(recipe.steps):
        content = images[torch.randint(len(images), (recipe.batch,), generator=rng)]
        others = by_look[int(torch.randint(len(LOOKS), (1,), generator=rng))]
        others = others[torch.randint(len(others), (recipe.batch,), generator=rng)]
        pooled = bool(torch.rand(1, generator=rng) < recipe.pooled)
        descent.step(photo_loss(codec, content, others, pooled, recipe))
    normalise(codec, images[:1600])
    return codec.eval()


@torch.no_grad()
def pass_pixels(codec: StyleCodec) -> None:
    """Initialises the network so that its first channels hand on the pixels, and the round trip is exact.

    At stride s they are the 3 s^2 colours of each s x s pixels. The other channels are drawn at random, and the decoder
    ignores them at first.
    """
    held = 3  # channels that hold pixels
    for layer in codec.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, a=0.2)
            assert layer.bias is not None
            layer.bias.zero_()
    for layer in codec.encoder:
        if isinstance(layer, nn.Conv2d):
            held = _hand_on(layer, held)
    convolutions = [layer for layer in codec.decoder if isinstance(layer, nn.Conv2d)]
    for layer, outputs in zip(convolutions, (held, held, held // 4, held // 4), strict=True):
        layer.weight[:outputs] = 0
        layer.weight[range(outputs), range(outputs), 1, 1] = 1


def _hand_on(layer: nn.Conv2d, held: int) -> int:
    """Sets the first outputs of `layer` to its first `held` inputs, at stride 2 to each of 2 x 2; returns their number."""
    stride = layer.stride[0]
    outputs = held * stride**2
    layer.weight[:outputs] = 0
    for output in range(outputs):
        channel, place = divmod(output, stride**2)
        layer.weight[output, channel, 1 + place // stride, 1 + place % stride] = 1
    return outputs


def photo_loss(codec: StyleCodec, content: Tensor, others: Tensor, pooled: bool, recipe: PhotoCodecRecipe) -> Tensor:
    """Reconstruction, style and content losses of `content` in the styles of `others`, both (N, 3, H, W).

    With `pooled`, the styles are pooled over `others`, one for all images; otherwise the i-th has the style of the i-th.
    """
    encoded = codec.encode(torch.cat([content, others]))
    features, given = encoded.chunk(2)
    own, wanted = PER_IMAGE_UNBIASED(features), PER_IMAGE_UNBIASED(given)
    if pooled:
        mean, std = over_pixels(*wanted)
        wanted = mean.expand_as(own[0]), std.expand_as(own[1])
    target = adain(features, *wanted, PER_IMAGE_UNBIASED, own)
    redrawn, stylised = codec.decode(torch.cat([features, target])).chunk(2)
    gradient = 0.1 * (stylised - stylised.detach())  # of value 0; pixels that are clamped need one
    again = codec.encode(stylised.clamp(0, 1) + gradient)
    scale = encoded.detach().std(dim=(0, 2, 3)).clamp_min(1e-3)
    before, after = _distance(own, wanted, scale), _distance(PER_IMAGE_UNBIASED(again), wanted, scale)
    style = (after / before.detach().clamp_min(0.5)).mean()
    kept = functional.mse_loss(_structure(again), _structure(features).detach())
    return recipe.redrawing * functional.mse_loss(redrawn, content) + recipe.style * style + recipe.content * kept


def _distance(ours: Moments, theirs: Moments, scale: Tensor) -> Tensor:
    """Distance (N,) of two styles (N, C), relative to the channels' `scale` (C,)."""
    apart = torch.cat([(a - b) / scale for a, b in zip(ours, theirs, strict=True)], dim=1)
    return (apart.square().sum(1) + 1e-6).sqrt()


def _structure(features: Tensor) -> Tensor:
    """Features (N, C, h, w) with mean 0 and std 1 in each channel of each image."""
    return functional.instance_norm(features, eps=1e-3)


@torch.no_grad()
def photo_figures(codec: StyleCodec, recipe: PhotoCodecRecipe) -> dict[str, float]:
    """Reconstruction PSNR in dB of crops of the held-out photographs, and the share of style distance left by AdaIN."""
    shown = photo_crops(HELD_OUT, recipe.held_out, recipe.side, generator(recipe.seed, 1))
    error = (codec(shown).clamp(0, 1) - shown).square().mean(dim=(1, 2, 3)).clamp_min(1e-10)
    found = {"psnr": float((-10 * error.log10()).mean())}
    others, looks = training_images(recipe.held_out, recipe.side, generator(recipe.seed, 3))
    for look, name in enumerate(LOOKS):
        given = over_pixels(*PER_IMAGE_UNBIASED(codec.encode(others[looks == look])))
        found[f"style left, {name}"] = float(style_left(codec, shown, given).mean())
    return found


def style_left(codec: StyleCodec, images: Tensor, style: Moments) -> Tensor:
    """Distance (N,) of stylised images' re-encoded moments to `style`, (C,) each, over that of images (N, 3, H, W)."""
    distances: list[Tensor] = []
    for shown in (images, codec.stylise(images, *style)):
        mean, std = PER_IMAGE_UNBIASED(codec.encode(shown))
        distances.append(torch.cat([mean - style[0], std - style[1]], dim=1).norm(dim=1))
    before, after = distances
    return after / before
