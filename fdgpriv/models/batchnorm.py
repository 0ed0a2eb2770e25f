"""BatchNorm on given images: recomputes a network's statistics, or normalises several batches in one pass."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from fdgpriv.data.pixels import as_images
from fdgpriv.models.copied import copied
from fdgpriv.models.cpu_io import device_of
from fdgpriv.utils.seeds import generator

M = TypeVar("M", bound=nn.Module)


def with_fresh_statistics(model: M, images: Tensor, batch_size: int) -> M:
    """A copy of `model` with BatchNorm statistics recomputed in one pass over these images.

    With a single image the statistics are unchanged.

    Args:
        model: Not modified.
        images: (N, 3, H, W), uint8 or float32.
        batch_size: Smallest batch size; see `mixed_batches`.
    """
    copy = copied(model)
    if len(images) > 1:
        recalibrate(copy, [images[index] for index in mixed_batches(len(images), batch_size)])
    return copy


def mixed_batches(n: int, batch_size: int) -> tuple[Tensor, ...]:
    """Indices of n images in batches of nearly equal size, none smaller than `batch_size` unless n is.

    The order is random and the same at each call: files in the order of their classes, or of all classes in turn, would
    make batches of few classes.
    """
    order = torch.randperm(n, generator=generator(0))
    return order.tensor_split(max(1, n // batch_size))


class GroupedBatchNorm(nn.Module):
    """Normalises each group of images that follow one another by its own batch statistics.

    Args:
        layer: The BatchNorm layer, with its scale and shift.
        size: Images in a group.
    """

    def __init__(self, layer: nn.BatchNorm2d, size: int) -> None:
        super().__init__()
        self.layer, self.size = layer, size

    def forward(self, features: Tensor) -> Tensor:
        """Normalised features of the same shape (M size, C, H, W)."""
        groups = features.unflatten(0, (-1, self.size))
        variance, mean = torch.var_mean(groups, dim=(1, 3, 4), correction=0, keepdim=True)
        normalised = (groups - mean) * torch.rsqrt(variance + self.layer.eps)
        if self.layer.affine:
            normalised = normalised * self.layer.weight[:, None, None] + self.layer.bias[:, None, None]
        joined: Tensor = normalised.flatten(0, 1)
        return joined


def group_batches(model: nn.Module, size: int) -> None:
    """Replaces the BatchNorm layers of `model` in training mode by layers for which each group of `size` images is a batch."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.BatchNorm2d) and layer.training:
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, GroupedBatchNorm(layer, size))


@torch.no_grad()
def recalibrate(model: nn.Module, batches: Sequence[Tensor]) -> dict[str, Tensor]:
    """Recomputes the BatchNorm statistics of `model` in place, as means over batches of images, and returns them.

    A layer whose batches were all too small keeps its statistics.
    """
    layers = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)
    }
    received = {name: {key: tensor.clone() for key, tensor in layer.named_buffers()} for name, layer in layers.items()}
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
            layer.load_state_dict(received[name], strict=False)
    return {
        f"{name}.{leaf}": tensor.to("cpu", copy=True)
        for name, layer in layers.items()
        for leaf, tensor in layer.named_buffers()
    }
