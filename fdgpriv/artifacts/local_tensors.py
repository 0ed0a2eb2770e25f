"""Tensors of a network of which each client may keep its own: those of BatchNorm layers, and of modules marked as local."""

from collections.abc import Collection

from torch import nn

_MARKED = "_fdgpriv_local_tensors"


class LocalModule(nn.Module):
    """A module of which each client trains its own; its tensors may be missing in what is shared."""


def tensors_of(model: nn.Module, kinds: type[nn.Module] | tuple[type[nn.Module], ...]) -> frozenset[str]:
    """Names of the parameters and buffers in modules of these types, whatever the modules are called."""
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, kinds)]
    return frozenset(
        f"{name}.{leaf}".removeprefix(".") for name, layer in layers for leaf in layer.state_dict(keep_vars=True)
    )


def batchnorm_tensors(model: nn.Module) -> frozenset[str]:
    """Names of scales, shifts, running statistics and counters of all BatchNorm layers, found by their type."""
    return tensors_of(model, nn.modules.batchnorm._BatchNorm)


def may_be_local(model: nn.Module) -> frozenset[str]:
    """Names of the tensors that a shared state of `model` may lack."""
    marked: frozenset[str] = getattr(model, _MARKED, frozenset())
    return batchnorm_tensors(model) | tensors_of(model, LocalModule) | marked


def mark_local(model: nn.Module, names: Collection[str]) -> None:
    """Marks tensors of these names as kept by each client, in the model and its copies."""
    setattr(model, _MARKED, frozenset(names))
