"""Finds the logits in what a network returns: a tensor, or one in a tuple, a dictionary or an object with fields."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_NAMES = ("logits", "logit", "output", "outputs", "out", "prediction", "predictions", "y")
_DEEPEST = 4  # nested tuples and dictionaries


def logits_of(output: object) -> Tensor | None:
    """The logits (N, K), or (N,) of one class, in a network's output; None if there are none."""
    return next(iter(located(output)), (None, ""))[0]


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
