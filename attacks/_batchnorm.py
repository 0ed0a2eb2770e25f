"""Reads batch statistics from a client's BatchNorm buffers, and compares them with those of reconstructed images.

Reference: Yin et al., "Dreaming to distill" (DeepInversion), CVPR 2020, Eq. 4, here relative to each channel's spread.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fdgpriv.artifacts.moments import Moments
from fdgpriv.artifacts.parameters import running
from fdgpriv.models.cpu_io import device_of

_COUNTER = "num_batches_tracked"
BATCH_SIZE = 128  # images in one pass of the network


def bn_layers(model: nn.Module) -> dict[str, _BatchNorm]:
    """The BatchNorm layers by name, in the network's order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}


def shares_statistics(state: Mapping[str, Tensor]) -> bool:
    """Whether BatchNorm's buffers are in this state."""
    return any(name.endswith("running_mean") for name in state)


def batches_seen(trained: Mapping[str, Tensor], received_model: Mapping[str, Tensor]) -> int:
    """The number of batches that the buffers processed between the two states; 0 where they were frozen or it is not
    recorded.
    """
    counts = [
        float(trained[name] - received_model[name])
        for name in received_model
        if name.endswith(_COUNTER) and name in trained
    ]
    return max(0, round(max(counts, default=0)))


def revealed(
    model: nn.Module, trained: Mapping[str, Tensor], received_model: Mapping[str, Tensor] | None, batches: int
) -> dict[str, Moments]:
    """Mean and variance (C,) of each BatchNorm layer's inputs in a client's training; empty where they are not revealed.

    PyTorch's buffers are running averages: after t batches the received value has weight (1 - m)^t, and the
    client's batches have the rest.

    Args:
        model: For the momentum m of its layers.
        trained: The client's state after training.
        received_model: The state before training; None takes the running values as they are.
        batches: t.
    """
    moments: dict[str, Moments] = {}
    trained_values, received_values = running(trained), running(received_model or {})
    for name, layer in bn_layers(model).items():
        if name not in trained_values or (received_model is not None and batches == 0):
            continue
        mean, variance = trained_values[name]
        if received_model is not None:
            received_weight = (1 - (0.1 if layer.momentum is None else layer.momentum)) ** batches
            mean, variance = (
                (value - received_weight * start) / (1 - received_weight)
                for value, start in zip(trained_values[name], received_values[name], strict=True)
            )
        moments[name] = mean, variance.clamp_min(0)
    return moments


@contextmanager
def watched(model: nn.Module, groups: int, batch_statistics: bool) -> Iterator[dict[str, Moments]]:
    """Context in which each forward pass of G groups of images records each group's moments (G, C) by layer.

    The variance is unbiased, as in the buffers, which do not change.

    Args:
        model: In evaluation mode.
        groups: G, of equal size.
        batch_statistics: Normalise each group by its own batch statistics, as a client in training does; else by the
            buffers.
    """
    recorded: dict[str, Moments] = {}
    hooks = []
    for name, layer in bn_layers(model).items():

        def record(layer: nn.Module, inputs: tuple[Tensor], output: Tensor, name: str = name) -> Tensor | None:
            flat = inputs[0].reshape(groups, -1, inputs[0].shape[1], inputs[0][0, 0].numel())
            values = flat.transpose(1, 2).flatten(2)  # (G, C, pixels of all images of the group)
            count = values.shape[2]
            variance, mean = torch.var_mean(values, dim=2, correction=0)
            recorded[name] = mean.cpu(), (variance * (count / max(1, count - 1))).cpu()
            if not batch_statistics or count == 1:
                return None
            assert isinstance(layer, _BatchNorm)
            scale = (variance + layer.eps).rsqrt()
            shift = -mean * scale
            if layer.affine:
                scale, shift = scale * layer.weight, shift * layer.weight + layer.bias
            return (flat * scale[:, None, :, None] + shift[:, None, :, None]).view_as(output)

        hooks.append(layer.register_forward_hook(record))
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def normalised_by(model: nn.Module, moments: Mapping[str, Moments]) -> Iterator[None]:
    """Context in which the BatchNorm layers of a model in evaluation mode normalise by these moments (C,), by layer."""
    layers = {name: layer for name, layer in bn_layers(model).items() if name in moments}
    buffers = [(layer.running_mean, layer.running_var) for layer in layers.values()]
    device = device_of(model)
    for name, layer in layers.items():
        mean, variance = moments[name]
        layer.running_mean, layer.running_var = mean.to(device), variance.to(device)
    try:
        yield
    finally:
        for layer, (running_mean, running_var) in zip(layers.values(), buffers, strict=True):
            layer.running_mean, layer.running_var = running_mean, running_var


def moment_distance(seen: Mapping[str, Moments], target: Mapping[str, Moments], first: float = 1.0) -> Tensor:
    """Distance (G,) between the moments of each group and the target moments (C,) or (G, C): 0 where they agree.

    Means in units of the target deviations, deviations relative to them; squares averaged over channels, then layers.

    Args:
        seen: By layer, the groups' moments.
        target: Target moments; these layers are compared.
        first: Weight of the first layer, whose inputs determine the image best.
    """
    terms = []
    for number, (name, (mean, variance)) in enumerate(target.items()):
        floor = 1e-2 * variance.mean(-1, keepdim=True) + 1e-6
        spread = (variance + floor).sqrt()
        seen_mean, seen_variance = seen[name]
        differences = (seen_mean - mean) / spread, (seen_variance + floor).sqrt() / spread - 1
        terms.append((first if number == 0 else 1.0) * (differences[0].square() + differences[1].square()).mean(-1))
    return torch.stack(terms).sum(0) / (len(terms) - 1 + first)


@torch.no_grad()
def normalise_as_one_batch(network: nn.Module, images: Tensor) -> None:
    """Sets the BatchNorm buffers of a network in evaluation mode to the statistics of these images in training mode."""
    layers = bn_layers(network)
    if not layers:
        return
    with watched(network, 1, batch_statistics=True) as seen:
        network(images)
    for name, layer in layers.items():
        if name in seen and layer.running_mean is not None and layer.running_var is not None:
            mean, variance = seen[name]
            layer.running_mean.copy_(mean[0])
            layer.running_var.copy_(variance[0])


def mean_squares(mean: Tensor, variance: Tensor) -> Tensor:
    """Means and mean squares (..., 2C) of means and variances (..., C)."""
    return torch.cat([mean, variance + mean.square()], dim=-1)


@torch.no_grad()
def image_mean_squares(network: nn.Module, images: Tensor, batch_statistics: bool) -> dict[str, Tensor]:
    """By BatchNorm layer, means and mean squares (N, 2C) of its inputs for each image (N, 3, H, W); float64, 0 if not finite.

    Args:
        network: In evaluation mode.
        images: Forwarded a part at a time.
        batch_statistics: Normalise each image by its own statistics; else by the buffers.
    """
    by_layer: dict[str, list[Tensor]] = {}
    for part in images.split(BATCH_SIZE):
        with watched(network, len(part), batch_statistics) as moments:
            network(part)
        for name, (mean, variance) in moments.items():
            by_layer.setdefault(name, []).append(mean_squares(mean, variance).double())
    return {name: torch.cat(rows).nan_to_num(0.0, 0.0, 0.0) for name, rows in by_layer.items()}


class _InputRecorded(Exception):
    """Stops a forward pass once the wanted layer's input is recorded."""


@torch.no_grad()
def layer_inputs(model: nn.Module, layer: nn.Module, images: Tensor) -> Tensor:
    """The inputs (N, ...) of this layer for images (N, 3, H, W), a part at a time; later layers are not computed.

    Empty (0,) if the network does not call the layer, as an auxiliary head in evaluation mode.
    """
    inputs: list[Tensor] = []

    def record(layer: nn.Module, arguments: tuple[Tensor]) -> None:
        inputs.append(arguments[0].cpu())
        raise _InputRecorded

    hook = layer.register_forward_pre_hook(record)
    try:
        for part in images.split(BATCH_SIZE):
            with suppress(_InputRecorded):
                model(part)
    finally:
        hook.remove()
    return torch.cat(inputs) if inputs else torch.zeros(0)
