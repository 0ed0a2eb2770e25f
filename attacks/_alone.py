"""What each image alone would have had its client share, many images at once: to compare an artifact with."""

import torch
from torch import Tensor, nn

from fdgpriv.artifact import ModelState
from fdgpriv.exam import View
from fdgpriv.style import Moments
from fdgpriv.subjects import StatisticsCraft
from fdgpriv.threat import Capability

from ._batchnorm import bn_layers, watched

_TOGETHER = 128


def alone(view: View, images: Tensor, sent: ModelState | None) -> Tensor:
    """(N, D): of each image (N, 3, H, W), the beginning of the vector of its own undefended artifact.

    Args:
        view: Of styles, or of BatchNorm statistics that are taken anew.
        images: Any.
        sent: The model that statistics are taken under; None for styles.
    """
    if sent is None:
        return torch.cat(view.styles(images), dim=1)
    craft = view.craft(StatisticsCraft, Capability.HAS_BN)
    model = craft.network().eval()
    sent.load_into(model)
    flat = {name for name, layer in bn_layers(model).items() if isinstance(layer, nn.BatchNorm1d)}
    rows = []
    for part in images.split(_TOGETHER):
        with torch.no_grad(), watched(model, len(part), own=True) as seen:
            model(part)
        rows.append(
            craft.row({name: seen[name] if name not in flat else _kept(name, sent, part) for name in seen}, sent)
        )
    return torch.cat(rows)


def _kept(layer: str, sent: ModelState, images: Tensor) -> Moments:
    """A layer of latents has no variance to take of a single one, and keeps what was sent."""
    mean, variance = (sent.state[f"{layer}.{leaf}"].expand(len(images), -1) for leaf in ("running_mean", "running_var"))
    return mean, variance
