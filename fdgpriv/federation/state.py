"""Stores the state of a training as JSON and named tensors, and loads it back bit for bit, without pickle.

Stored are numbers, texts, lists, tuples, dictionaries, tensors, artifacts, random generators, networks, optimisers and
`Resumable` objects. Strides of tensors are kept, since results on another memory format differ in the last bits.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Artifact

# Bytes to which torch aligns the memory of a new tensor, unlike a file's: sums over memory that begins elsewhere may be
# grouped differently, and differ in the last bits.
_ALIGNED = 64


class Resumable:
    """Base of objects whose attributes `checkpointed` change in training and are stored in its checkpoints."""

    checkpointed: ClassVar[tuple[str, ...]] = ()

    def blank(self, name: str) -> object:
        """The object into which the stored attribute `name` is loaded; override it for attributes that start as None."""
        return getattr(self, name)

    def resumed(self) -> None:
        """Called when all attributes are loaded, to compute what depends on them."""


class StateEncoder:
    """Encodes values as JSON; their tensors are collected in `tensors`, each once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._stored: dict[tuple[Any, ...], JsonValue] = {}
        self._alive: list[Tensor] = []  # an address in `_stored` must not be used again

    def encode(self, value: object) -> JsonValue:
        """The JSON of `value`; TypeError if it is of none of the kinds that are stored."""
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list):
            return [self.encode(entry) for entry in value]
        if isinstance(value, Mapping):
            return {"dict": [[self.encode(key), self.encode(entry)] for key, entry in value.items()]}
        if isinstance(value, tuple):
            return {"tuple": [self.encode(entry) for entry in value]}
        return self._object(value)

    def _object(self, value: object) -> JsonValue:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, Artifact):
            return {"artifact": value.kind, "tensors": self.encode(value.tensors()), "facts": dict(value.facts())}
        if isinstance(value, torch.Generator):
            return {"generator": self._tensor(value.get_state())}
        if isinstance(value, nn.Module):
            modes: list[JsonValue] = [module.training for module in value.modules()]
            return {"module": self.encode(value.state_dict()), "training": modes}
        if isinstance(value, torch.optim.Optimizer):
            return {"optimizer": self.encode(value.state_dict())}
        if isinstance(value, Resumable):
            return {"object": {name: self.encode(getattr(value, name)) for name in value.checkpointed}}
        raise TypeError(f"want a value that a checkpoint can store, got {type(value).__name__}")

    def _tensor(self, value: Tensor) -> JsonValue:
        """A reference to a stored tensor; tensors that share memory are stored, and loaded, as one."""
        value = value.detach()
        key = (value.data_ptr(), value.device, value.dtype, value.shape, value.stride())
        if key not in self._stored or not value.numel():
            name = str(len(self.tensors))
            ordered = value.permute(_order(value.stride()))
            dense = ordered.is_contiguous()
            fills_storage = value.untyped_storage().nbytes() == value.numel() * value.element_size()
            self.tensors[name] = (ordered if dense else value.contiguous()).to("cpu", copy=not fills_storage)
            stride: list[JsonValue] | None = list(value.stride()) if dense else None
            self._alive.append(value)
            self._stored[key] = {"tensor": name, "stride": stride, "cpu": value.device.type == "cpu"}
        return self._stored[key]


class StateDecoder:
    """Decodes what a StateEncoder wrote; raises KeyError, TypeError, ValueError or RuntimeError if it does not fit.

    Args:
        tensors: The stored tensors by name.
        device: Of tensors that were not on the CPU.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        self.tensors, self.device = tensors, device
        self._loaded: dict[str, Tensor] = {}

    def decode(self, stored: JsonValue, into: object = None) -> Any:
        """The stored value; networks, optimisers, generators, dictionaries and `Resumable` are loaded into `into`."""
        if isinstance(stored, list):
            return [self.decode(entry) for entry in stored]
        if not isinstance(stored, dict):
            return stored
        kind = next(iter(stored))
        if kind == "float":
            return float(str(stored["float"]))
        if kind == "tuple":
            return tuple(self.decode(stored["tuple"]))
        if kind == "dict":
            return self._dict(stored["dict"], into)
        if kind == "tensor":
            return self._tensor(stored)
        if kind == "artifact":
            facts = stored["facts"]
            if not isinstance(facts, dict):
                raise TypeError("want facts of an artifact as a dictionary")
            return Artifact.kinds[str(stored["artifact"])].build(self.decode(stored["tensors"]), facts)
        return self._object(stored, kind, into)

    def _object(self, stored: dict[str, JsonValue], kind: str, into: object) -> object:
        if kind == "generator" and isinstance(into, torch.Generator):
            into.set_state(self.decode(stored[kind]))
        elif kind == "module" and isinstance(into, nn.Module):
            self._module(stored, into)
        elif kind == "optimizer" and isinstance(into, torch.optim.Optimizer):
            into.load_state_dict(self.decode(stored[kind]))
        elif kind == "object" and isinstance(into, Resumable):
            entries = stored[kind]
            if not isinstance(entries, dict) or tuple(entries) != into.checkpointed:
                raise ValueError(f"want {', '.join(into.checkpointed)} of {type(into).__name__}")
            for name, entry in entries.items():
                setattr(into, name, self.decode(entry, into.blank(name)))
            into.resumed()
        else:
            raise ValueError(f"want a stored {type(into).__name__}, got {kind}")
        return into

    def _dict(self, entries: JsonValue, into: object) -> dict[Any, Any]:
        """A dictionary; `into` is updated in place, and so are its values."""
        if not isinstance(entries, list):
            raise TypeError("want a list of the entries of a dictionary")
        decoded: dict[Any, Any] = into if isinstance(into, dict) else {}
        previous = dict(decoded)
        decoded.clear()
        for pair in entries:
            if not isinstance(pair, list) or len(pair) != 2:
                raise TypeError("want pairs of key and value in a dictionary")
            key, entry = pair
            name = self.decode(key)
            decoded[name] = self.decode(entry, previous.get(name))
        return decoded

    def _module(self, stored: dict[str, JsonValue], into: nn.Module) -> None:
        """Loads a network, whose parameters remain the same objects: optimisers refer to them."""
        saved, modes, modules = self.decode(stored["module"]), stored["training"], list(into.modules())
        current = into.state_dict(keep_vars=True)
        if {name: t.shape for name, t in saved.items()} != {name: t.shape for name, t in current.items()}:
            raise ValueError("want the tensors of this network, got others")
        if not isinstance(modes, list) or len(modes) != len(modules):
            raise ValueError("want a mode of each layer")
        for name, tensor in current.items():
            tensor.data = saved[name].to(tensor.device)
        for module, mode in zip(modules, modes, strict=True):
            module.training = bool(mode)

    def _tensor(self, stored: dict[str, JsonValue]) -> Tensor:
        name, stride = str(stored["tensor"]), stored["stride"]
        if name not in self._loaded:
            tensor = self.tensors[name]
            if tensor.data_ptr() % _ALIGNED:
                tensor = tensor.clone()
            if stride is not None:
                tensor = _strided(tensor, stride)
            self._loaded[name] = tensor if stored["cpu"] else tensor.to(self.device)
        return self._loaded[name]


def _order(stride: tuple[int, ...]) -> list[int]:
    """The dimensions from the largest stride to the smallest."""
    return sorted(range(len(stride)), key=lambda dim: -stride[dim])


def _strided(tensor: Tensor, stride: JsonValue) -> Tensor:
    """The view of a contiguous `tensor`, stored in the order of its memory, that has these strides."""
    if not isinstance(stride, list) or len(stride) != tensor.ndim:
        raise ValueError(f"want {tensor.ndim} strides, got {stride}")
    wanted = tuple(int(str(step)) for step in stride)
    view = tensor.permute(torch.tensor(_order(wanted)).argsort().tolist())
    if any(size > 1 and step != current for size, step, current in zip(view.shape, wanted, view.stride(), strict=True)):
        raise ValueError(f"want strides of a dense tensor, got {list(wanted)}")
    return view.as_strided(view.shape, wanted)  # strides of dimensions of size 1 are arbitrary, and restored too
