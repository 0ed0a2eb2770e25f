"""Gives recorded tensors the names and types of the user's network: without wrappers' prefixes, and by place in lists."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate, TensorState
from fdgpriv.federation.transcript import Record, Transcript
from fdgpriv.models.copied import copied
from fdgpriv.models.state_dicts import without_wrappers

NetworkNames = Mapping[str, str]


def unwrapped(network: nn.Module) -> nn.Module:
    """The network inside wrappers for parallel, compiled or private training."""
    for name in ("module", "_orig_mod", "_module"):
        inner = network._modules.get(name)
        if inner is not None and len(network._modules) == 1 and not list(network._parameters):
            return unwrapped(inner)
    return network


def in_single_precision(network: nn.Module) -> tuple[nn.Module, list[str]]:
    """The network, or a copy in float32 where it has floats of another type, and a sentence that says so."""
    tensors = [*network.named_parameters(), *network.named_buffers()]
    others = [
        (name, tensor.dtype) for name, tensor in tensors if tensor.is_floating_point() and tensor.dtype != torch.float32
    ]
    if not others:
        return network, []
    name, dtype = others[0]
    return copied(network).float(), [
        f"The network is evaluated in float32; it was given with {name} in {str(dtype).removeprefix('torch.')}."
    ]


def fit_names(transcript: Transcript, network: nn.Module) -> list[str]:
    """Renames the tensors of all recorded models and updates to those of the network; floats get its types.

    Returns: a sentence for the report if names changed.

    Raises:
        ValueError: A tensor that has floating-point values in the network has none in the recording.
    """
    fitted: dict[int, Artifact] = {}
    expected, changed = network.state_dict(), dict[str, str]()
    for index, artifact in transcript.kept.items():
        if not isinstance(artifact, ModelState | ModelUpdate):
            continue
        if id(artifact) not in fitted:
            names = renamed(artifact.state, network)
            changed |= {old: new for old, new in names.items() if old != new}
            fitted[id(artifact)] = _with_types(artifact, names, expected, transcript.records[index])
        transcript.kept[index] = fitted[id(artifact)]
    if not changed:
        return []
    old, new = next(iter(changed.items()))
    return [f"Recorded tensors were renamed to the network's ({len(changed)} names): {old} is {new}."]


def changed_states(transcript: Transcript, change: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]) -> None:
    """Applies `change` to the tensors of all recorded models and updates."""
    changed: dict[int, TensorState] = {}
    for index, artifact in transcript.kept.items():
        if isinstance(artifact, ModelState | ModelUpdate):
            if id(artifact) not in changed:
                changed[id(artifact)] = replace(artifact, state=change(artifact.state))
            transcript.kept[index] = changed[id(artifact)]


def renamed(state: Mapping[str, Tensor], network: nn.Module) -> NetworkNames:
    """By recorded name, the network's; the recorded names where they do not fit in any way."""
    expected = network.state_dict()
    same = {name: name for name in state}
    if state.keys() <= expected.keys():
        return same
    for names in (_by_wrappers(state, expected), _by_place(state, network), _by_prefix(state, expected)):
        if names and all(state[old].shape == expected[new].shape for old, new in names.items()):
            return names
    return same


def _by_wrappers(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> NetworkNames:
    by_inner = {without_wrappers(name): name for name in expected}
    names = {name: by_inner.get(without_wrappers(name), "") for name in state}
    return names if all(names.values()) else {}


def _by_place(state: Mapping[str, Tensor], network: nn.Module) -> NetworkNames:
    """Of a list of all tensors of the network's state dict, or of its parameters."""
    if list(state) != [str(place) for place in range(len(state))]:
        return {}
    for names in (list(network.state_dict()), [name for name, _ in network.named_parameters()]):
        if len(names) == len(state):
            return dict(zip(state, names, strict=True))
    return {}


def _by_prefix(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> NetworkNames:
    """Where recorded names have one prefix more than the network's, or one less."""
    first = next(iter(state))
    for start in _dots(first):
        prefix = first[:start]
        names = {name: name.removeprefix(prefix) for name in state if name.startswith(prefix)}
        if len(names) == len(state) and set(names.values()) <= expected.keys():
            return names
    for longer in reversed(list(expected)):
        if longer.endswith(f".{first}"):
            prefix = longer.removesuffix(first)
            if all(_fits(tensor, expected.get(f"{prefix}{name}")) for name, tensor in state.items()):
                return {name: f"{prefix}{name}" for name in state}
    return {}


def _fits(tensor: Tensor, other: Tensor | None) -> bool:
    return other is not None and tensor.shape == other.shape


def _dots(name: str) -> Sequence[int]:
    """Where the parts of a name after its dots begin."""
    return [place + 1 for place, character in enumerate(name) if character == "."]


def _with_types(
    artifact: ModelState | ModelUpdate, names: NetworkNames, expected: Mapping[str, Tensor], record: Record
) -> ModelState | ModelUpdate:
    """The artifact with the network's names, and floats of the network's types."""
    state = {names[name]: tensor for name, tensor in artifact.state.items()}
    for name, tensor in state.items():
        if name in expected and expected[name].is_floating_point():
            if not tensor.is_floating_point():
                raise ValueError(
                    f"want floating-point tensors in the {record.kind} of {record.sender} in round {record.round}, "
                    f"got {name} of type {str(tensor.dtype).removeprefix('torch.')}"
                )
            state[name] = tensor.to(expected[name].dtype)
    if list(names) == list(names.values()) and all(state[name] is tensor for name, tensor in artifact.state.items()):
        return artifact
    return replace(artifact, state=state).in_file()
