"""Copies networks, several times as fast as `copy.deepcopy`."""

from copy import deepcopy
from typing import Any, TypeVar

from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)

_IMMUTABLE = (bool, int, float, str, type(None))


def copied(module: M) -> M:
    """A copy that shares nothing with the network: the same as `copy.deepcopy` gives.

    Most of what `deepcopy` does is to copy some twenty empty tables of hooks of every module.
    """
    return _copied(module, {})


def _copied(module: M, known: dict[int, Any]) -> M:
    """The copy; `known` has, by id, what is copied already, as `deepcopy` keeps it, so that shared parts stay shared."""
    if id(module) in known:
        found: M = known[id(module)]
        return found
    copy = known[id(module)] = module.__class__.__new__(module.__class__)
    for name, value in vars(module).items():
        if name == "_modules":
            vars(copy)[name] = type(value)((key, _part(part, known)) for key, part in value.items())
        elif name in ("_parameters", "_buffers"):
            vars(copy)[name] = type(value)((key, _tensor(part, known)) for key, part in value.items())
        elif isinstance(value, _IMMUTABLE):
            vars(copy)[name] = value
        elif isinstance(value, dict) and not value:
            vars(copy)[name] = type(value)()
        else:
            vars(copy)[name] = deepcopy(value, known)
    return copy


def _part(part: nn.Module | None, known: dict[int, Any]) -> nn.Module | None:
    return None if part is None else _copied(part, known)  # not by truth: an empty container is false


def _tensor(tensor: Tensor | None, known: dict[int, Any]) -> Tensor | None:
    if tensor is None:
        return None
    if id(tensor) not in known:
        clone = tensor.detach().clone()
        parameter = isinstance(tensor, nn.Parameter)
        known[id(tensor)] = nn.Parameter(clone, tensor.requires_grad) if parameter else clone
    found: Tensor = known[id(tensor)]
    return found
