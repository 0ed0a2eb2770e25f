"""Tent: test-time adaptation by entropy minimisation (Wang et al., ICLR 2021).

As in Tent's paper: Adam at 1e-3, one pass over the images, which are classified as they come. CCST's released code, for its
table, has SGD at 1e-4 instead, and passes ten times over the target before it reports an accuracy.
"""

import torch
from torch import Tensor, nn

from fdgpriv.data.pixels import as_images
from fdgpriv.models.batchnorm import mixed_batches
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
    BatchNorm lowers the mean entropy of these predictions, for the batches that follow.

    Args:
        model: Not modified.
        images: (N, 3, H, W), at least 2, uint8 or float32.
        batch_size: Smallest batch size; see `mixed_batches`.
        lr: Of Adam.
    """
    adapted, device = copied(model), device_of(model)
    adapted.eval().requires_grad_(False)
    layers = batchnorm_layers(adapted)
    for layer in layers:
        layer.train().requires_grad_(True)
    optimizer = torch.optim.Adam([parameter for layer in layers for parameter in layer.parameters()], lr)
    logits, batches = [], mixed_batches(len(images), batch_size)
    for index in batches:
        with torch.enable_grad():
            outputs: Tensor = adapted(as_images(images[index]).to(device))
            entropy = -(outputs.softmax(1) * outputs.log_softmax(1)).sum(1).mean()
            optimizer.zero_grad()
            entropy.backward()
        optimizer.step()
        logits.append(outputs.detach().cpu())
    return torch.cat(logits)[torch.cat(batches).argsort()]
