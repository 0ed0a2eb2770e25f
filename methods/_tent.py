"""Tent: test-time adaptation by entropy minimisation (Wang et al., ICLR 2021)."""

import torch
from torch import Tensor, nn

from fdgpriv.data.pixels import as_images
from fdgpriv.models.copied import copied
from fdgpriv.models.cpu_io import device_of

LR = 1e-3  # of Adam


def batchnorm_layers(model: nn.Module) -> list[nn.Module]:
    """The BatchNorm layers with a scale and a shift, which Tent trains."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    return [layer for layer in layers if layer.affine]


def tent_logits(model: nn.Module, images: Tensor, batch_size: int, lr: float = LR) -> Tensor:
    """Logits (N, K) of unlabelled images, to which a copy of `model` adapts batch by batch.

    Each batch is normalised by its own statistics and classified; then one step of Adam on the scales and shifts of
    BatchNorm lowers the mean entropy of these predictions, for the batches that follow. Image i of N is in batch i mod k,
    with k = max(1, N // batch_size).

    Args:
        model: Not modified.
        images: (N, 3, H, W), at least 2, uint8 or float32.
        batch_size: Smallest batch size.
        lr: Of Adam.
    """
    adapted, device = copied(model), device_of(model)
    adapted.eval().requires_grad_(False)
    layers = batchnorm_layers(adapted)
    for layer in layers:
        layer.train().requires_grad_(True)
    optimizer = torch.optim.Adam([parameter for layer in layers for parameter in layer.parameters()], lr)
    count = max(1, len(images) // batch_size)
    logits: Tensor | None = None
    for first in range(count):
        with torch.enable_grad():
            outputs: Tensor = adapted(as_images(images[first::count]).to(device))
            entropy = -(outputs.softmax(1) * outputs.log_softmax(1)).sum(1).mean()
            optimizer.zero_grad()
            entropy.backward()
        optimizer.step()
        logits = torch.zeros(len(images), outputs.shape[1]) if logits is None else logits
        logits[first::count] = outputs.detach().cpu()
    assert logits is not None
    return logits
