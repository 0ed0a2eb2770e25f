"""Batch statistics that a client's BatchNorm buffers reveal, and their distance from those of reconstructed images.

Reference: Yin et al., "Dreaming to distill" (DeepInversion), CVPR 2020, Eq. 4, here relative to each channel's spread.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fdgpriv.artifacts.moments import Moments
from fdgpriv.artifacts.parameters import running

_COUNTER = "num_batches_tracked"
TOGETHER = 128  # images computed at once


def bn_layers(model: nn.Module) -> dict[str, _BatchNorm]:
    """The BatchNorm layers by name, in the network's order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}


def shares_statistics(state: Mapping[str, Tensor]) -> bool:
    """Whether BatchNorm's buffers are in this state."""
    return any(name.endswith("running_mean") for name in state)


def batches_seen(after: Mapping[str, Tensor], received_model: Mapping[str, Tensor]) -> int:
    """The number of batches that the buffers processed between the two states; 0 where they were frozen or it is not
    recorded.
    """
    counts = [
        float(after[name] - received_model[name])
        for name in received_model
        if name.endswith(_COUNTER) and name in after
    ]
    return max(0, round(max(counts, default=0)))


def revealed(
    model: nn.Module, after: Mapping[str, Tensor], received_model: Mapping[str, Tensor] | None, batches: int
) -> dict[str, Moments]:
    """By BatchNorm layer, mean and variance (C,) of its inputs over a client's training; empty where they are not revealed.

    PyTorch's buffers are running averages: after t batches the received value has weight (1 - m)^t, and the rest is the
    client's own.

    Args:
        model: For the momentum m of its layers.
        after: The client's state after training.
        received_model: The state before training; None takes the running values as they are.
        batches: t.
    """
    found: dict[str, Moments] = {}
    ended, began = running(after), running(received_model or {})
    for name, layer in bn_layers(model).items():
        if name not in ended or (received_model is not None and batches == 0):
            continue
        mean, variance = ended[name]
        if received_model is not None:
            kept = (1 - (0.1 if layer.momentum is None else layer.momentum)) ** batches
            mean, variance = (
                (own - kept * start) / (1 - kept) for own, start in zip(ended[name], began[name], strict=True)
            )
        found[name] = mean, variance.clamp_min(0)
    return found


@contextmanager
def watched(model: nn.Module, groups: int, own: bool) -> Iterator[dict[str, Moments]]:
    """Context in which each forward pass of G groups of images records each group's moments (G, C) by layer.

    The variance is unbiased, as in the buffers, which do not change.

    Args:
        model: In evaluation mode.
        groups: G, of equal size.
        own: Normalise each group by its own statistics, as a client in training does; else by the buffers.
    """
    seen: dict[str, Moments] = {}
    hooks = []
    for name, layer in bn_layers(model).items():

        def look(layer: nn.Module, inputs: tuple[Tensor], output: Tensor, name: str = name) -> Tensor | None:
            flat = inputs[0].reshape(groups, -1, inputs[0].shape[1], inputs[0][0, 0].numel())
            values = flat.transpose(1, 2).flatten(2)  # (G, C, pixels of all its images)
            count = values.shape[2]
            variance, mean = torch.var_mean(values, dim=2, correction=0)
            seen[name] = mean.cpu(), (variance * (count / max(1, count - 1))).cpu()
            if not own or count == 1:
                return None
            assert isinstance(layer, _BatchNorm)
            scale = (variance + layer.eps).rsqrt()
            shift = -mean * scale
            if layer.affine:
                scale, shift = scale * layer.weight, shift * layer.weight + layer.bias
            return (flat * scale[:, None, :, None] + shift[:, None, :, None]).view_as(output)

        hooks.append(layer.register_forward_hook(look))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def normalised_by(model: nn.Module, moments: Mapping[str, Moments]) -> Iterator[None]:
    """Context in which the BatchNorm layers of a model in evaluation mode normalise by these moments (C,), by layer."""
    layers = {name: layer for name, layer in bn_layers(model).items() if name in moments}
    buffers = [(layer.running_mean, layer.running_var) for layer in layers.values()]
    for name, layer in layers.items():
        mean, variance = moments[name]
        layer.running_mean, layer.running_var = mean.to(layer.weight.device), variance.to(layer.weight.device)
    try:
        yield
    finally:
        for layer, (running_mean, running_var) in zip(layers.values(), buffers, strict=True):
            layer.running_mean, layer.running_var = running_mean, running_var


def apart(seen: Mapping[str, Moments], target: Mapping[str, Moments], first: float = 1.0) -> Tensor:
    """Distance (G,) between the moments of each group and the target moments (C,) or (G, C): 0 where they agree.

    Means in units of the target deviations, deviations relative to them; squares averaged over channels, then layers.

    Args:
        seen: By layer, the groups' moments.
        target: Target moments of some or all of these layers.
        first: Weight of the first layer, whose inputs are nearest to the image.
    """
    terms = []
    for number, (name, (mean, variance)) in enumerate(target.items()):
        floor = 1e-2 * variance.mean(-1, keepdim=True) + 1e-6
        spread = (variance + floor).sqrt()
        ours_mean, ours_variance = seen[name]
        off = (ours_mean - mean) / spread, (ours_variance + floor).sqrt() / spread - 1
        terms.append((first if number == 0 else 1.0) * (off[0].square() + off[1].square()).mean(-1))
    return torch.stack(terms).sum(0) / (len(terms) - 1 + first)


class _Enough(Exception):
    """Stops a forward pass once the wanted layer's input is recorded."""


@torch.no_grad()
def layer_inputs(model: nn.Module, layer: nn.Module, images: Tensor) -> Tensor:
    """The inputs (N, ...) of this layer for images (N, 3, H, W), a part at a time; later layers are not computed."""
    seen: list[Tensor] = []

    def look(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        seen.append(inputs[0].cpu())
        raise _Enough

    hook = layer.register_forward_pre_hook(look)
    try:
        for part in images.split(TOGETHER):
            with suppress(_Enough):
                model(part)
    finally:
        hook.remove()
    return torch.cat(seen)
