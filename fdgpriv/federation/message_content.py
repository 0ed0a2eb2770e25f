"""Converts what a training loop sends into artifacts, part by part: a part that has no form of a tensor is left out."""

import operator
import re
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import MAX_COUNT, Artifact
from fdgpriv.artifacts.named_tensors import named_tensors
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState, ModelUpdate, TensorState
from fdgpriv.artifacts.statistics import SampleCount, ValidationMetrics
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.federation.omission import reason

ENCODER = "encoder"  # the layer of recorded styles: the output of the user's encoder
UNKNOWN_RULE = "unknown"  # the style rule of recorded styles
OF = " of the "  # between the name of a tensor and the kind of its artifact
METRICS = "metrics"  # the kind of figures other than an accuracy
_ACCURACY = "accuracy"
_LONGEST_KIND = 64  # characters
_STORED = (  # types of tensors that every reader of safetensors knows; smaller floats are converted to float32
    *(torch.float32, torch.float64, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
)

Omit = Callable[[str, str], None]
"""Notes that the content of this name is left out, and why."""


class Kinds:
    """The kind of artifact of each key by which a training names content: a word made of the key, another one for each."""

    def __init__(self) -> None:
        self._kind_of = {METRICS: METRICS}

    def __getitem__(self, key: object) -> str:
        name = str(key)
        if name not in self._kind_of:
            self._kind_of[name] = next(word for word in _words(name) if word not in self._kind_of.values())
        return self._kind_of[name]


def _words(name: str) -> Iterator[str]:
    """Possible kinds of this name, the preferred one first; none is a kind that fdgpriv knows."""
    letters = re.sub("[^a-z0-9_]", "_", name.lower())
    word = letters if letters[:1].isalpha() and letters.strip("_") else f"kind_{letters.strip('_')}".rstrip("_")
    for number in range(1, 2**31):
        suffix = "" if number == 1 else f"_{number}"
        candidate = f"{word[: _LONGEST_KIND - len(suffix)]}{suffix}"
        if candidate not in Artifact.kinds:
            yield candidate


def message_artifacts(
    sender: str, round: int, sent: Mapping[str, Any], tensors: Mapping[str, Any], kinds: Kinds, omit: Omit
) -> list[Artifact]:
    """The artifacts of one message.

    Args:
        sender: A client, or the server.
        round: From 0.
        sent: The arguments of `Recording.up` by name, without those that are None.
        tensors: The tensors by name of an artifact of the kind ``sent["kind"]``.
        kinds: Of all messages of the training.
        omit: Called for each part that is left out.
    """
    artifacts: list[Artifact] = []

    def add(content: str, build: Callable[[], Artifact]) -> None:
        try:
            artifacts.append(build())
        except Exception as error:
            omit(content, reason(error))

    def add_state(artifact_class: type[TensorState], content: object) -> None:
        add(
            artifact_class.kind,
            lambda: artifact_class(client=sender, round=round, state=_state(content, artifact_class.kind, omit)),
        )

    if not sent and not tensors:
        omit("content", "want something that was sent: model, update, style, head, n, metrics or a kind; got none")
    if "metrics" in sent:
        figures = sent["metrics"]
        if isinstance(figures, Mapping) and _ACCURACY in figures:
            accuracy = figures[_ACCURACY]
            figures = {name: figure for name, figure in figures.items() if name != _ACCURACY}
            add(ValidationMetrics.kind, lambda: _accuracy(sender, round, accuracy))
        if not isinstance(figures, Mapping) or figures:
            add_state(named_tensors(METRICS), figures)
    if "model" in sent:
        add_state(ModelState, sent["model"])
    if "head" in sent:
        add_state(ClassifierHead, sent["head"])
    if "update" in sent:
        add(ModelUpdate.kind, lambda: _update(sender, round, sent["update"], omit))
    if "kind" in sent or tensors:
        kind = kinds[sent.get("kind", "unnamed")]
        add_state(named_tensors(kind), tensors)
    if "style" in sent:
        add(StyleStatistics.kind, lambda: _style(sender, round, sent["style"]))
    if "n" in sent:
        add(SampleCount.kind, lambda: _count(sender, round, sent["n"]))
    return artifacts


def _state(content: object, kind: str, omit: Omit) -> dict[str, Tensor]:
    """The tensors of a state dict; those that have none are left out.

    Raises:
        ValueError: There are none.
    """
    state: dict[str, Tensor] = {}
    for name, value in _entries(content):
        try:
            if name in state:
                raise ValueError("want one tensor of this name, got two")
            state[name] = dense(value)
        except Exception as error:
            omit(f"{name}{OF}{kind}", reason(error))
    if not state:
        raise ValueError(f"want tensors by name, got {_described(content)}")
    return state


def _entries(content: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values in nested dictionaries, named by their keys joined with dots; those of a list by their place."""
    if isinstance(content, nn.Module):
        content = content.state_dict()
    if isinstance(content, ItemsView | ValuesView):
        content = dict(content) if isinstance(content, ItemsView) else list(content)
    if isinstance(content, Mapping):
        for key, value in content.items():
            if isinstance(value, Mapping | nn.Module):
                yield from _entries(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value
    elif isinstance(content, list | tuple):
        yield from ((f"{prefix}{place}", value) for place, value in enumerate(content))
    elif isinstance(content, Tensor | np.ndarray):
        yield f"{prefix}0", content
    else:  # an iterator is the training's: reading it would empty it
        raise ValueError(f"want tensors by name, got {_described(content)}")


def dense(value: object) -> Tensor:
    """The tensor, array, number, or list of numbers, as a dense tensor on the CPU; floats below 32 bits as float32.

    Raises:
        ValueError: It is none of these, or of a type that is not stored.
    """
    tensor = _tensor(value).detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    if tensor.is_floating_point() and tensor.element_size() < torch.float32.itemsize:
        tensor = tensor.float()
    if tensor.dtype not in _STORED:
        raise ValueError(f"want a tensor of real numbers, got {_type_name(tensor)}")
    return tensor


def _tensor(value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float):
        return torch.tensor(value)
    if not isinstance(value, np.ndarray | np.generic | list | tuple) and hasattr(value, "numpy"):
        value = value.numpy()  # an Array of Flower
    if isinstance(value, np.ndarray | np.generic | list | tuple):
        array = np.array(value, order="C")
        if isinstance(value, list | tuple) and array.dtype == np.float64:
            array = array.astype(np.float32)  # as torch does
        if array.dtype.kind in "biufc":
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
            return torch.from_numpy(array.astype(np.float64) if array.dtype == np.longdouble else array)
        raise ValueError(f"want a tensor, an array or a number, got {type(value).__name__} of {array.dtype}")
    raise ValueError(f"want a tensor, an array or a number, got {type(value).__name__}")


def _update(sender: str, round: int, content: object, omit: Omit) -> ModelUpdate:
    """The update, received minus trained, of a change that is trained minus received."""
    state = _state(content, ModelUpdate.kind, omit)
    return ModelUpdate(client=sender, round=round, state={name: -_signed(tensor) for name, tensor in state.items()})


def _signed(tensor: Tensor) -> Tensor:
    unsigned = tensor.dtype in (torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    return tensor.long() if unsigned else tensor


def _style(sender: str, round: int, style: Sequence[Any]) -> StyleStatistics:
    """The style of these two or four moments; without the last two, their variances are empty."""
    if len(style) not in (2, 4):
        raise ValueError(f"want style=(mean, std) or (mean, std, mean_var, std_var), got {len(style)} parts")
    moments = [dense(part).flatten() for part in style]
    empty = moments[0].new_empty(0)
    mean, std, mean_var, std_var = moments if len(moments) == 4 else (*moments, empty, empty)
    return StyleStatistics(
        client=sender,
        round=round,
        mean=mean,
        std=std,
        mean_var=mean_var,
        std_var=std_var,
        granularity="client",
        at=ENCODER,
        rule=UNKNOWN_RULE,
    )


def _accuracy(sender: str, round: int, accuracy: Any) -> ValidationMetrics:
    return ValidationMetrics(client=sender, round=round, accuracy=torch.tensor(float(accuracy), dtype=torch.float64))


def _count(sender: str, round: int, n: Any) -> SampleCount:
    number = whole_number(n)
    if number is None or not 1 <= number <= MAX_COUNT:
        raise ValueError(f"want n from 1 to {MAX_COUNT}, got {_described(n)}")
    return SampleCount(client=sender, round=round, count=torch.tensor(number))


def whole_number(value: Any) -> int | None:
    """The whole number that this object is: an int, a float without fraction, a tensor or an array of one; else None."""
    try:
        number = operator.index(value)
    except Exception:
        try:
            number = int(value)
            return number if not isinstance(value, str | bytes) and bool(number == value) else None
        except Exception:
            return None
    return number


def _described(value: object) -> str:
    """A number, or the type and size of anything else."""
    if isinstance(value, bool | int | float | np.generic):
        return str(value)
    size = f" of {len(value)}" if isinstance(value, Mapping | list | tuple) else ""
    return f"{type(value).__name__}{size}"


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
