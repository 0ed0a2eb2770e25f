"""Recomputes the BatchNorm statistics of a network on given images."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from fdgpriv.data.pixels import as_images
from fdgpriv.models.copied import copied
from fdgpriv.models.from_cpu import device_of

M = TypeVar("M", bound=nn.Module)


def with_fresh_statistics(model: M, images: Tensor, batch_size: int) -> M:
    """A copy of `model` with BatchNorm statistics recomputed in one pass over these images.

    Image i of N is in batch i mod k, with k = max(1, N // batch_size), so no batch is smaller than `batch_size` unless N is.
    With a single image the statistics are unchanged.

    Args:
        model: Not modified.
        images: (N, 3, H, W), uint8 or float32.
        batch_size: Smallest batch size.
    """
    copy = copied(model)
    count = max(1, len(images) // batch_size)
    if len(images) > 1:
        recalibrate(copy, [images[i::count] for i in range(count)])
    return copy


@torch.no_grad()
def recalibrate(model: nn.Module, batches: Sequence[Tensor]) -> dict[str, Tensor]:
    """Recomputes the BatchNorm statistics of `model` in place, as means over batches of images, and returns them.

    A layer that received no large enough batch keeps its statistics.
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    before = {name: {k: t.clone() for k, t in layer.named_buffers()} for name, layer in layers.items()}
    momenta = {name: layer.momentum for name, layer in layers.items()}
    for layer in layers.values():
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over batches
    device = device_of(model)
    model.train()
    for images in batches:
        model(as_images(images).to(device))
    model.eval()
    for name, layer in layers.items():
        layer.momentum = momenta[name]
        if not int(layer.num_batches_tracked or 0):
            layer.load_state_dict(before[name], strict=False)
    return {
        f"{name}.{leaf}": tensor.to("cpu", copy=True)
        for name, layer in layers.items()
        for leaf, tensor in layer.named_buffers()
    }
