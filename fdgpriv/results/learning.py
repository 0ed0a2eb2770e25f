"""What a linear probe reaches on the images of the source accuracy: below half-way to it a model has not learned."""

from collections.abc import Callable

import numpy as np
import torch
from sklearn.linear_model import RidgeClassifierCV
from torch import Tensor, nn

from fdgpriv.data.pixels import as_images, joined
from fdgpriv.federation.partition import Population
from fdgpriv.models.cpu_io import device_of
from fdgpriv.results.utility_finding import SourceProbe
from fdgpriv.utils.seeds import generator

MAX_TRAINING_IMAGES = 1500  # of all clients, that the probe is fitted to
_MAX_SIDE = 32  # pixels of a side of the images that are probed; larger ones are reduced
_BATCH = 64  # images
_PENALTIES = tuple(10.0**e for e in range(-2, 6))

Embed = Callable[[Tensor], Tensor]


def source_probe(population: Population, embed: Embed | None = None) -> SourceProbe | None:
    """The accuracy on the clients' held-out images of a linear classifier that is fitted to their training images.

    It is a ridge classifier with the penalty of the least leave-one-out error, fitted to all clients' images together, at
    most `MAX_TRAINING_IMAGES` of them.

    Args:
        population: The clients.
        embed: Features (N, D) of images (N, 3, H, W) in [0, 1], by the pre-trained network that training starts from; None
            for a network that starts from random numbers: then pixels are probed.

    Returns: None without held-out images, or if the training images have a single class.
    """
    clients = population.clients.values()
    labels, held_out = (torch.cat([getattr(data, name) for data in clients]) for name in ("labels", "held_out_labels"))
    if not len(held_out) or len(labels.unique()) < 2:
        return None
    chosen = torch.randperm(len(labels), generator=generator(len(labels)))[:MAX_TRAINING_IMAGES].sort().values
    features = embed or _pixels
    fitted = _features(joined([data.pixels for data in clients])[chosen], features)
    asked = _features(joined([data.held_out_pixels for data in clients]), features)
    scale = float(fitted.std()) or 1.0
    probe = RidgeClassifierCV(alphas=_PENALTIES).fit(fitted / scale, labels[chosen].numpy())
    return SourceProbe(
        accuracy=float(np.mean(probe.predict(asked / scale) == held_out.numpy())),
        majority=float(held_out.bincount().max()) / len(held_out),
        on="pixels" if embed is None else "pre-trained features",
    )


def embedding(network: nn.Module) -> Embed:
    """The mean over positions (N, C) of a network's last feature map, in evaluation mode."""
    network.eval()
    return lambda images: network(images.to(device_of(network))).mean(dim=(2, 3)).cpu()


@torch.no_grad()
def _features(images: Tensor, embed: Embed) -> np.ndarray:
    parts = [embed(as_images(part)) for part in images.split(_BATCH)]
    return torch.cat(parts).double().numpy()


def _pixels(images: Tensor) -> Tensor:
    """The pixels (N, D) of images whose side is at most `_MAX_SIDE`, to which larger ones are averaged."""
    if max(images.shape[-2:]) > _MAX_SIDE:
        images = nn.functional.interpolate(images, size=(_MAX_SIDE, _MAX_SIDE), mode="area")
    return images.flatten(1)
