"""Reads the state dict of a network from the files that people save: wrapped, with prefixes, with optimiser state.

Only tensors and plain containers are unpickled.
"""

import argparse
import codecs
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from fdgpriv.utils.warnings_filter import warnings_ignored

_WRAPPERS = re.compile(r"(?:(?<=\.)|^)(?:module|_module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_SCALAR = np.float64(0).__reduce__()[0]  # what unpickles a number of numpy
_HARMLESS: list[Any] = [  # saved with state dicts: command lines, paths and numbers; they run no code of the file
    argparse.Namespace,
    pathlib.PosixPath,
    codecs.encode,
    np.dtype,
    *(type(np.dtype(kind)) for kind in "?bhilqBHILQefd"),
    _SCALAR,
    (_SCALAR, "numpy.core.multiarray.scalar"),
    (_SCALAR, "numpy._core.multiarray.scalar"),
]
REMEDY = "save the tensors alone: torch.save(model.state_dict(), FILE)"


def read_tensors(
    path: Path, names: Collection[str] = (), renamed: Callable[[str], str] = lambda name: name
) -> dict[str, Tensor]:
    """The state dict in a .safetensors file or a torch checkpoint.

    Other entries, such as ``"epoch"`` in ``{"state_dict": ..., "epoch": 3}``, and the parts of names that come from wrappers of
    networks, such as ``module.`` or ``_orig_mod.``, are removed.

    Args:
        path: The file.
        names: Names that the state dict has. Their prefix in the file is removed from all names, and tensors without this
            prefix are left out.
        renamed: Today's name of a tensor in an old file.

    Raises:
        ValueError: There is no state dict, or several with these names, or the file contains objects that would run code.
    """
    tensors = {renamed(without_wrappers(name)): tensor for name, tensor in _tensors(_content(path))}
    if not tensors:
        raise ValueError(f"want a state dict (name: tensor) in {path}, got no tensor with a name; {REMEDY}")
    prefix = _prefix(tensors, names, path)
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def without_wrappers(name: str) -> str:
    """The name of a tensor without the parts that come from wrappers of networks, such as ``module.`` or ``_orig_mod.``."""
    return _WRAPPERS.sub("", name)


def _content(path: Path) -> Any:
    """What the file contains; ValueError in one line if it cannot be read without running its code."""
    try:
        with path.open("rb") as file:
            is_safetensors = file.read(9)[8:] == b"{"
        if is_safetensors:
            return safetensors.torch.load_file(path)
        with torch.serialization.safe_globals(_HARMLESS), warnings_ignored(UserWarning):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise nearly everything
        reason = str(error)
        if kind := re.search(r"(?:GLOBAL|[Uu]nsupported class) ([\w.]+)", reason):
            problem = f"a pickled {kind[1]}, which is not read, as unpickling runs its code; {REMEDY}"
        elif "TorchScript" in reason:
            problem = f"a TorchScript archive; {REMEDY}"
        else:
            problem = f"{(reason.splitlines() or ['an empty file'])[0][:200]}; {REMEDY}"
    raise ValueError(f"want a state dict in {path}, got {problem}")


def _tensors(content: object, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors in nested dictionaries, named by their keys joined with dots."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            if isinstance(value, Tensor):
                yield f"{prefix}{name}", value
            else:
                yield from _tensors(value, f"{prefix}{name}.")


def _prefix(tensors: Mapping[str, Tensor], names: Collection[str], path: Path) -> str:
    """The prefix of `names` in the file; where several prefixes fit equally well, their tensors must be equal."""
    counts = Counter[str]()
    for name in tensors:
        for start in (0, *(dot.end() for dot in re.finditer(r"\.", name))):
            if name[start:] in names:
                counts[name[:start]] += 1
    fitting = [prefix for prefix, count in counts.items() if count == max(counts.values())]
    if len(fitting) < 2 or "" in fitting:
        return fitting[0] if len(fitting) == 1 else ""
    first, *others = fitting
    for other in others:
        if any(
            f"{first}{name}" in tensors and not _equal(tensors[f"{first}{name}"], tensors.get(f"{other}{name}"))
            for name in names
        ):
            raise ValueError(
                f"want one network in {path}, got several: {', '.join(prefix.rstrip('.') for prefix in sorted(fitting))}; "
                "save the tensors of one alone: torch.save(model.state_dict(), FILE)"
            )
    return first


def _equal(tensor: Tensor, other: Tensor | None) -> bool:
    return other is not None and tensor.shape == other.shape and torch.equal(tensor, other)
