"""Finds the logits in what a network returns: a tensor, or one in a tuple, a dictionary or an object with fields."""

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor

_NAMES = ("logits", "logit", "output", "outputs", "out", "prediction", "predictions", "y")
_NAMED_PLACES = tuple(place for name in _NAMES[:-1] for place in (f"[{name!r}]", f".{name}"))
_DEEPEST = 4  # nested tuples and dictionaries


def logits_of(output: object, columns: int) -> Tensor | None:
    """The logits (N, K), or (N,) of one class, in a network's output; None if there are none.

    Args:
        output: Of the network.
        columns: K. If no tensor has so many columns, the likeliest one is returned.
    """
    tensors = [tensor for tensor, _ in located(output)]
    return next((tensor for tensor in tensors if _columns(tensor) == columns), tensors[0] if tensors else None)


def likeliest(output: object, layers: Collection[int], classes: int) -> tuple[Tensor, str] | None:
    """The logits in a network's output and their place in it; None if there are none.

    They are the tensor with a name of logits; of others the one with the fewest columns among those that a linear layer may
    have returned and that have one for each class; else the first one. Features and projections have more columns.

    Args:
        output: Of the network.
        layers: Numbers of outputs of its linear layers.
        classes: Number of classes that labels name, at least.
    """
    candidates = list(located(output))
    if not candidates or isinstance(output, Tensor) or any(place.endswith(_NAMED_PLACES) for _, place in candidates):
        return candidates[0] if candidates else None
    fitting = [c for c in candidates if _columns(c[0]) in layers and (_columns(c[0]) == 1 or _columns(c[0]) >= classes)]
    return min(fitting or candidates[:1], key=lambda candidate: _columns(candidate[0]))


def _columns(tensor: Tensor) -> int:
    return tensor.shape[1] if tensor.ndim == 2 else 1


def as_two_logits(logits: Tensor) -> Tensor:
    """Logits (N, 2) of which a softmax gives the sigmoid of logits (N,) or (N, 1)."""
    logit = logits.reshape(-1, 1)
    return torch.cat([torch.zeros_like(logit), logit], dim=1)


def located(output: object, place: str = "", depth: int = 0) -> Iterator[tuple[Tensor, str]]:
    """Tensors (N, K) or (N,) in the output, likely logits first, each with its place in it, as in ``['logits']`` or ``[0]``."""
    if isinstance(output, Tensor):
        if output.ndim in (1, 2) and output.is_floating_point():
            yield output, place
        return
    for part, where in _parts(output):
        if depth < _DEEPEST:
            yield from located(part, f"{place}{where}", depth + 1)


def _parts(output: object) -> Iterator[tuple[object, str]]:
    """The parts of a tuple, dictionary or object, those with names of logits first."""
    if isinstance(output, Mapping):
        ordered = sorted(output, key=lambda key: _rank(key))
        yield from ((output[key], f"[{key!r}]") for key in ordered)
    elif hasattr(output, "_fields"):
        yield from ((getattr(output, name), f".{name}") for name in sorted(output._fields, key=_rank))
    elif isinstance(output, tuple | list):
        yield from ((part, f"[{place}]") for place, part in enumerate(output))
    elif hasattr(output, "__dict__"):
        yield from ((vars(output)[name], f".{name}") for name in sorted(vars(output), key=_rank))


def _rank(name: object) -> int:
    return _NAMES.index(name) if name in _NAMES else len(_NAMES)
