"""Finds weight files and reads state dicts, unpickling tensors only."""

import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

_HEADS = ("fc.", "classifier.")
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


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a torch checkpoint that holds a state dict and nothing else."""
    try:
        if path.suffix == ".safetensors":
            return dict(safetensors.torch.load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, RuntimeError, pickle.UnpicklingError, EOFError, KeyError, ValueError) as error:
        raise ValueError(
            f"want a state dict in {path}, got: {(str(error).splitlines() or ['an empty file'])[0]}"
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"want a state dict (name: tensor) in {path}, got {type(state).__name__}")
    return {str(name): value for name, value in state.items()}


def load_backbone(network: nn.Module, name: str, path: Path) -> None:
    """Loads a backbone's weights into `network`, which has no head; the head in the file is ignored.

    Args:
        network: Has the tensors of the published network but its head's.
        name: Of the published file, for the error message.
        path: The file.
    """
    state = {
        _OLD_DENSENET.sub(r"\1\2", key): value
        for key, value in read_tensors(path).items()
        if not key.startswith(_HEADS)
    }
    load_exactly(network, state, name, path)


def load_exactly(network: nn.Module, state: Mapping[str, Tensor], name: str, path: Path) -> None:
    """Loads a state dict read from `path`; ValueError in one line unless names and shapes are the network's."""
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"want the tensors of {name} in {path}; {reason[:300]}") from error
