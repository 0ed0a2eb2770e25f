"""Finds weight files and loads them into networks, after checking that they fit."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from fdgpriv.models.state_dicts import REMEDY, read_tensors

_COUNTER = "num_batches_tracked"
_MAX_NAMES = 3  # that a message lists
_OLD_DENSENET = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\.\w+)$")


def find_weights(files: Sequence[str], source: str, weights: Path | None = None) -> Path:
    """The first existing one of `files` in the folder `weights`, then in torch's checkpoints (TORCH_HOME).

    Args:
        files: Accepted file names, the preferred one first.
        source: Their origin, as a clause: "comes from https://...".
        weights: The user's folder, or the file itself.

    Raises:
        FileNotFoundError: There is none.
    """
    if weights is not None and weights.is_file():
        return weights
    folders = [Path(torch.hub.get_dir()) / "checkpoints"]
    if weights is not None:
        folders.insert(0, weights)
    for folder in folders:
        for file in files:
            if (folder / file).is_file():
                return folder / file
    searched = ", ".join(str(folder) for folder in folders)
    raise FileNotFoundError(f"want {' or '.join(files)}, which {source}; looked for it in {searched}")


def load_backbone(network: nn.Module, name: str, path: Path, heads: tuple[str, ...] = ()) -> None:
    """Loads a backbone's weights into `network`, which has no head; layers in the file that it lacks are ignored.

    Args:
        network: Has the tensors of the published network but its head's.
        name: Of the published file, for the error message.
        path: The file.
        heads: Names of heads within the network's layers, which are ignored, too.
    """
    wanted = network.state_dict()
    layers = {tensor.partition(".")[0] for tensor in wanted}
    state = {
        key: value
        for key, value in read_tensors(path, wanted.keys(), renamed=partial(_OLD_DENSENET.sub, r"\1\2")).items()
        if key.partition(".")[0] in layers and not key.startswith(heads)
    }
    load_exactly(network, state, name, path)


def load_exactly(network: nn.Module, state: Mapping[str, Tensor], name: str, path: Path) -> None:
    """Loads a state dict read from `path`; ValueError in one line unless its tensors are the network's and finite."""
    check_tensors(network, state, name, path)
    network.load_state_dict(state)


def check_tensors(network: nn.Module, state: Mapping[str, Tensor], name: str, path: Path) -> None:
    """Raises ValueError, in one line, unless the tensors in `state` have the network's names and shapes, and are finite.

    Counters of BatchNorm may be missing, as in files of old versions.

    Args:
        network: The network.
        state: By name, the tensors read from `path`.
        name: Of the published file.
        path: The file.
    """
    wanted = network.state_dict()
    want = f"want the tensors of {name} in {path}"
    if missing := [key for key in wanted if key not in state and not key.endswith(_COUNTER)]:
        raise ValueError(f"{want}; missing: {_listed(missing)}; {REMEDY}, of this network")
    if unknown := [key for key in state if key not in wanted]:
        raise ValueError(f"{want}; of no layer of it: {_listed(unknown)}; is it another network's?")
    for key, tensor in state.items():
        if tensor.shape != wanted[key].shape:
            raise ValueError(f"{want}; want {key} {tuple(wanted[key].shape)}, got {tuple(tensor.shape)}")
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            raise ValueError(f"{want}; want {key} as a dense tensor, got {tensor.layout} {tensor.dtype}")
        if wanted[key].is_floating_point() and not (tensor.is_floating_point() and _is_finite(key, tensor)):
            kind = "NaN, infinities or negative variances" if tensor.is_floating_point() else str(tensor.dtype)
            raise ValueError(f"{want}; want finite numbers in {key}, got {kind}; save a network that computes")


def _is_finite(name: str, tensor: Tensor) -> bool:
    """Whether all numbers are finite, as the float32 that they become, and a variance is not negative."""
    numbers = tensor.float()
    return bool(numbers.isfinite().all()) and not (name.endswith("running_var") and bool((numbers < 0).any()))


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more
