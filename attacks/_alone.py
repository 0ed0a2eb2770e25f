"""What each image alone adds to the beginning of a client's artifact: to compare candidates with it."""

import torch
from torch import Tensor, nn

from fdgpriv.artifact import ModelState
from fdgpriv.exam import View
from fdgpriv.subjects import StatisticsCraft
from fdgpriv.threat import Capability

from ._batchnorm import bn_layers

_TOGETHER = 128


def alone(view: View, images: Tensor, sent: ModelState | None, among: Tensor | None = None) -> Tensor:
    """(N, D): of each image (N, 3, H, W), the beginning of the vector of its own undefended artifact.

    Of statistics it is the first BatchNorm layer: what reaches it was not normalised yet, so that the other images of a
    batch do not change it, and of several images its means are averages.

    Args:
        view: Of styles, or of BatchNorm statistics that are taken anew.
        images: Any.
        sent: The model that statistics are taken under; None for styles.
        among: Of styles that clients take jointly: images of a client in whose batches each of `images` would be.
    """
    if sent is None:
        return torch.cat(view.styles(images, among), dim=1)
    craft = view.craft(StatisticsCraft, Capability.HAS_BN)
    model = craft.network().eval()
    sent.load_into(model)
    name, layer = next(iter(bn_layers(model).items()))
    rows = []
    for part in images.split(_TOGETHER):
        variance, mean = torch.var_mean(_reaching(model, layer, part), dim=(2, 3))
        rows.append(craft.row({name: (mean, variance)}, sent))
    return torch.cat(rows)


class _Enough(Exception):
    """What is wanted of a pass through the network is there."""


@torch.no_grad()
def _reaching(model: nn.Module, layer: nn.Module, images: Tensor) -> Tensor:
    """The inputs (N, C, H, W) of this layer; what comes after it is not computed."""
    seen: list[Tensor] = []

    def look(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        seen.append(inputs[0])
        raise _Enough

    hook = layer.register_forward_pre_hook(look)
    try:
        model(images)
    except _Enough:
        pass
    finally:
        hook.remove()
    return seen[0]
