"""Copies networks, several times as fast as `copy.deepcopy`."""

from copy import deepcopy
from typing import Any, TypeVar

from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)

_IMMUTABLE = (bool, int, float, str, type(None))


def copied(module: M) -> M:
    """A copy that shares no tensor with the network, equal to that of `copy.deepcopy`.

    `deepcopy` spends most of its time on the twenty or so empty tables of hooks of every module.
    """
    return _copied(module, {})


def _copied(module: M, copies: dict[int, Any]) -> M:
    """A copy; `copies` has the objects already copied, by id, as in `deepcopy`, so that shared parts stay shared."""
    if id(module) in copies:
        module_copy: M = copies[id(module)]
        return module_copy
    copy = copies[id(module)] = module.__class__.__new__(module.__class__)
    for name, value in vars(module).items():
        if name == "_modules":
            vars(copy)[name] = type(value)((key, _copied_module(part, copies)) for key, part in value.items())
        elif name in ("_parameters", "_buffers"):
            vars(copy)[name] = type(value)((key, _copied_tensor(part, copies)) for key, part in value.items())
        elif isinstance(value, _IMMUTABLE):
            vars(copy)[name] = value
        elif isinstance(value, dict) and not value:
            vars(copy)[name] = type(value)()
        else:
            vars(copy)[name] = deepcopy(value, copies)
    return copy


def _copied_module(part: nn.Module | None, copies: dict[int, Any]) -> nn.Module | None:
    return None if part is None else _copied(part, copies)  # `or` would not do: an empty container is false


def _copied_tensor(tensor: Tensor | None, copies: dict[int, Any]) -> Tensor | None:
    if tensor is None:
        return None
    if id(tensor) not in copies:
        clone = tensor.detach().clone()
        parameter = isinstance(tensor, nn.Parameter)
        copies[id(tensor)] = nn.Parameter(clone, tensor.requires_grad) if parameter else clone
    copy: Tensor = copies[id(tensor)]
    return copy
