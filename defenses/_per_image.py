"""Gradients of single images: hooks around Opacus' layer rules, and a twin of a network that has only such layers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

import torch
from torch import Tensor, nn

_CHANNELS_PER_GROUP = 8


def group_norm_twin(model: nn.Module) -> nn.Module:
    """`model` with each BatchNorm2d replaced, in place, by GroupNorm with its scales and offsets; other tensors are kept.

    Groups have about 8 channels. BatchNorm has no gradients of single images: it normalises by the whole mini-batch.

    Raises:
        ValueError: A layer has parameters or buffers for which Opacus has no rule.
    """
    for name, module in list(model.named_modules()):
        if type(module) is nn.BatchNorm2d:
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, _group_norm(module))
    rules = _rules()
    for name, module in model.named_modules():
        if next(module.buffers(recurse=False), None) is not None or (_is_trained(module) and type(module) not in rules):
            raise ValueError(f"want layers with gradients of single images, got {type(module).__name__} ({name})")
    return model


def _group_norm(norm: nn.BatchNorm2d) -> nn.GroupNorm:
    channels = norm.num_features
    group_norm = nn.GroupNorm(gcd(channels, max(1, channels // _CHANNELS_PER_GROUP)), channels, norm.eps, norm.affine)
    if norm.affine:
        group_norm.load_state_dict({"weight": norm.weight.detach(), "bias": norm.bias.detach()})
    return group_norm


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters with gradients, in the network's order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def per_image_gradients(model: nn.Module, mean_loss: Callable[[], Tensor], count: int) -> Tensor:
    """Gradients (count, D) of each image's loss for all trained parameters, flattened and joined in their order.

    Args:
        model: A network as `group_norm_twin` returns it; the gradients of its parameters change.
        mean_loss: Computes the mean of the losses of `count` images.
        count: The number of images.
    """
    with _collected_gradients(model) as collected:
        mean_loss().backward()
    zeros = [parameter.new_zeros(count, parameter.numel()) for parameter in trained_parameters(model)]
    gradients = [collected.get(parameter) for parameter in trained_parameters(model)]
    parts = [zero if gradient is None else gradient.flatten(1) for gradient, zero in zip(gradients, zeros, strict=True)]
    return torch.cat(parts, dim=1)


@contextmanager
def _collected_gradients(model: nn.Module) -> Iterator[dict[nn.Parameter, Tensor]]:
    """Context in which a backward pass of a mean loss collects the gradients (count, *shape) of single images, by parameter.

    Hooks are on tensors, not on modules as in Opacus' GradSampleModule, which fails where a later layer works in place.
    Opacus' rule for convolutions is wrong, without an error, for tensors in channels-last format: it gets copies
    with usual strides.
    """
    collected: dict[nn.Parameter, Tensor] = {}
    rules = _rules()

    def register(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        activations = [_with_usual_strides(inputs[0].detach())]

        @torch.no_grad()
        def collect(gradient: Tensor) -> None:
            per_image = _with_usual_strides(gradient * len(gradient))  # from the mean loss to each image's loss
            for parameter, gradients in rules[type(module)](module, activations, per_image).items():
                collected[parameter] = collected[parameter] + gradients if parameter in collected else gradients

        output.register_hook(collect)

    hooks = [module.register_forward_hook(register) for module in model.modules() if _is_trained(module)]
    try:
        yield collected
    finally:
        for hook in hooks:
            hook.remove()


def _with_usual_strides(tensor: Tensor) -> Tensor:
    """A copy with the usual strides; `contiguous` would keep those of maps of one pixel."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _is_trained(module: nn.Module) -> bool:
    """Whether the module itself, not only one inside it, has a parameter with a gradient."""
    return any(parameter.requires_grad for parameter in module.parameters(recurse=False))


def _rules() -> dict[type[nn.Module], Callable[..., Any]]:
    """Opacus' rules for gradients of single images, by type of layer."""
    from opacus.grad_sample import GradSampleModule  # imported here since it takes a second

    rules: dict[type[nn.Module], Callable[..., Any]] = GradSampleModule.GRAD_SAMPLERS
    return rules
