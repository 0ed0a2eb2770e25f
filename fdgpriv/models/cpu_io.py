"""Networks on a GPU that take inputs from the CPU and return outputs to the CPU, where attacks keep images."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def with_cpu_io(model: M) -> M:
    """`model`, changed to take tensors from the CPU, whatever its device, and to return its output on the CPU.

    Gradients pass through both ways. A network on the CPU is left as it is.
    """
    if device_of(model).type != "cpu":
        model.register_forward_pre_hook(_to_network)
        model.register_forward_hook(_to_cpu)
    return model


def device_of(model: nn.Module) -> torch.device:
    """The device of a network's parameters; the CPU for a network without any."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@torch.no_grad()
def latents_of(model: Any, images: Tensor) -> Tensor:
    """Latents (N, p) of images (N, 3, H, W), both on the CPU, of a network with `embedding`, in the mode that it is in."""
    device = device_of(model)
    return torch.cat([model.embedding(part.to(device)).cpu() for part in images.split(256)])


def _to_network(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    device = device_of(model)
    return tuple(value.to(device) if isinstance(value, Tensor) else value for value in inputs)


def _to_cpu(model: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    return output.cpu()
