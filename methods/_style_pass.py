"""Computes the styles of clients' images with BatchNorm's batch statistics, as in training.

Reference: Park et al., "StableFDG", NeurIPS 2023, Step 1; in train mode as in the released code, but on a copy.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.moments import Moments, StyleRule, at_once
from fdgpriv.federation.disclosure import StyleSource
from fdgpriv.models.backbone import Backbone
from fdgpriv.models.batchnorm import group_batches
from fdgpriv.models.copied import copied
from fdgpriv.models.cpu_io import device_of

from ._federation import LocalSGD, batch_count


class BatchStyles(StyleSource):
    """Styles of the global model's features, with batch statistics of the client's own batches."""

    uses_batch_statistics = True

    def __init__(self, settings: LocalSGD) -> None:
        self.settings = settings

    def of_client(self, model: nn.Module, images: Tensor, layer: str, rule: StyleRule) -> Moments:
        return styles_in_batches(model, images, layer, rule, self.settings)

    def of_clients(self, model: nn.Module, images: Tensor, layer: str, rule: StyleRule, clients: Tensor) -> Moments:
        return styles_of_clients(model, images, layer, rule, self.settings, clients)

    def in_frame_of(self, model: nn.Module, images: Tensor, layer: str) -> nn.Module:
        return with_statistics_of(model, images, layer, self.settings)


@torch.no_grad()
def styles_in_batches(model: nn.Module, images: Tensor, layer: str, rule: StyleRule, settings: LocalSGD) -> Moments:
    """Mean and std (n, C) of the features of images (n, 3, H, W), with BatchNorm using batch statistics.

    Args:
        model: Has a `backbone`; not modified.
        images: Of one client, in order.
        layer: The stage whose output is used.
        rule: How mean and std are computed.
        settings: Batch size, and mode of BatchNorm in training.
    """
    backbone = _ready_copy(model, len(images), layer, settings)
    parts = [rule(backbone.features(part, layer)) for part in _batches(backbone, images, settings)]
    mean, std = (torch.cat(moments).cpu() for moments in zip(*parts, strict=True))
    return mean, std


@torch.no_grad()
def styles_of_clients(
    model: nn.Module, images: Tensor, layer: str, rule: StyleRule, settings: LocalSGD, clients: Tensor
) -> Moments:
    """Mean and std (M, n, C), as `styles_in_batches`, of M clients with the images at `clients` (M, n) each.

    Batches of equal size of several clients are computed in one pass of the network.
    """
    by_batch = []
    for batches in clients.tensor_split(batch_count(clients.shape[1], settings.batch_size), dim=1):
        size = batches.shape[1]
        backbone = _ready_copy(model, clients.shape[1], layer, settings)
        group_batches(backbone, size)
        device = device_of(backbone)
        passes = batches.split(max(1, at_once(*images.shape[-2:]) // size))
        by_pass = [
            rule(backbone.features(images[indices.flatten()].to(device, memory_format=torch.channels_last), layer))
            for indices in passes
        ]
        by_batch.append(
            [torch.cat(batch_moments).cpu().unflatten(0, (-1, size)) for batch_moments in zip(*by_pass, strict=True)]
        )
    mean, std = (torch.cat(moment, dim=1) for moment in zip(*by_batch, strict=True))
    return mean, std


@torch.no_grad()
def with_statistics_of(model: nn.Module, images: Tensor, layer: str, settings: LocalSGD) -> nn.Module:
    """A copy of `model` in evaluation mode, with running statistics up to `layer` set to their mean over the batches."""
    copy = copied(model)
    copy.backbone = backbone = _ready_copy(model, len(images), layer, settings)
    for module in backbone.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            module.reset_running_stats()
            module.momentum = None  # a plain mean over batches
    for part in _batches(backbone, images, settings):
        backbone.features(part, layer)
    return copy.eval()


def _ready_copy(model: nn.Module, n: int, layer: str, settings: LocalSGD) -> Backbone:
    """A copy of the stages up to `layer` in the training mode of a client with n images, channels last for CPU speed."""
    full = cast(Backbone, model.backbone)
    needed = full.stages[: full.stages.index(full.stage(layer)) + 1]
    stages = {name: copied(full.body[name]) for name in needed}
    backbone = Backbone(stages, {name: full.channels[name] for name in needed}, full.mean, full.std)
    settings.ready(backbone, n)
    return backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _batches(backbone: Backbone, images: Tensor, settings: LocalSGD) -> Iterator[Tensor]:
    """All images in order, in as many batches as an epoch has; none smaller than the batch size unless it is the only one."""
    device = device_of(backbone)
    for part in images.tensor_split(batch_count(len(images), settings.batch_size)):
        yield part.to(device, memory_format=torch.channels_last)
