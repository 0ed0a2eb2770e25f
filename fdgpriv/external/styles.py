"""Reads external style statistics from .npz, .safetensors, or mean.npy and std.npy, without pickle."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fdgpriv.utils.arrays import AnyArray, read_array, read_arrays
from fdgpriv.utils.user_names import plain

Array = NDArray[np.float64]

MAX_VALUE = 1e100  # squared distances of larger values overflow
WANTED = "one .npz or .safetensors with arrays mean and std (n, C), or mean.npy and std.npy"
MAX_CLIENTS = 10_000  # controls need memory quadratic in the number of clients


@dataclass(frozen=True, eq=False)
class ExternalStyles:
    """One style per client.

    Attributes:
        name: File name without suffix.
        mean, std: (n, C) float64, in the files' units.
        groups: (n,) the domain of each client as given by the user; None if unknown.
    """

    name: str
    mean: Array
    std: Array
    groups: NDArray[np.int64] | None

    @property
    def vectors(self) -> Array:
        """(n, 2C): mean and std concatenated, unscaled."""
        return np.concatenate([self.mean, self.std], axis=1)

    @property
    def sha256(self) -> str:
        """SHA-256 of mean, std and groups, each after its shape and type of number as JSON, in hexadecimal."""
        hashed = hashlib.sha256()
        for array in (self.mean, self.std, *(() if self.groups is None else (self.groups,))):
            hashed.update(json.dumps([array.shape, str(array.dtype)]).encode() + array.tobytes())
        return hashed.hexdigest()


def read(files: Sequence[Path], sizes: Sequence[int] = ()) -> ExternalStyles:
    """The styles in these files.

    Args:
        files: One ``.npz`` or ``.safetensors`` with arrays ``mean``, ``std`` and optionally ``groups``; or two ``.npy``,
            first the means, then the standard deviations.
        sizes: Number of clients of each domain, in the files' order; empty to use ``groups`` of the file, if any.

    Raises:
        ValueError: The files have other content or NaN, or the sizes do not add up to the number of clients.
    """
    try:
        arrays = _arrays(files)
        if "mean" not in arrays or "std" not in arrays:
            raise ValueError(f"want arrays mean and std in {files[0]}, got {', '.join(sorted(arrays)) or 'neither'}")
        mean, std = _table(arrays["mean"], "mean", files[0]), _table(arrays["std"], "std", files[-1])
        if mean.shape != std.shape:
            raise ValueError(f"want mean and std of one shape (n, C), got {mean.shape} and {std.shape}")
        if bool((std < 0).any()):
            raise ValueError(f"want standard deviations of at least 0, got {std.min():.4g} in {files[-1]}")
        groups = _groups(arrays["groups"], len(mean), files[0]) if "groups" in arrays else None
    except ValueError as error:
        raise ValueError(f"--artifact: {error}") from None
    if sizes:
        if sum(sizes) != len(mean) or min(sizes) < 1:
            raise ValueError(
                f"--groups: want positive sizes that add up to {len(mean)} clients, got {'+'.join(map(str, sizes))}"
            )
        groups = np.repeat(np.arange(len(sizes)), sizes)
    return ExternalStyles(files[0].stem.removesuffix("_mean"), mean, std, groups)


def _arrays(files: Sequence[Path]) -> Mapping[str, AnyArray]:
    """By name, the arrays in the files; ValueError says which files are accepted."""
    try:
        if len(files) == 2:
            return {"mean": read_array(files[0]), "std": read_array(files[1])}
        if len(files) == 1 and files[0].suffix in (".npz", ".safetensors"):
            return read_arrays(files[0], ("mean", "std", "groups"))
    except ValueError as error:
        raise ValueError(f"{error}; give {WANTED}") from None
    raise ValueError(f"want {WANTED}; got {' '.join(map(str, files))}")


def _table(array: AnyArray, name: str, file: Path) -> Array:
    """The array as (n, C), without trailing singleton axes."""
    if array.ndim < 2 or array.dtype.kind not in "fiu" or any(side != 1 for side in array.shape[2:]):
        raise ValueError(f"want {name} (n, C) of numbers, got {array.shape} {array.dtype} in {file}")
    clients, channels = array.shape[:2]
    if not 2 <= clients <= MAX_CLIENTS or channels < 1:
        raise ValueError(
            f"want {name} of 2 to {MAX_CLIENTS:,} clients and at least 1 channel, got {array.shape} in {file}"
        )
    with np.errstate(over="ignore"):
        table = array.reshape(clients, channels).astype(np.float64)
    if not bool((np.abs(table) <= MAX_VALUE).all()):
        raise ValueError(f"want finite numbers of at most {MAX_VALUE:g} in {name}, got others in {file}")
    return table


def _groups(array: AnyArray, clients: int, file: Path) -> NDArray[np.int64]:
    """Domain numbers (n,) from 0, in sorted order of the names."""
    if array.dtype.kind not in "biuSU" and not (array.dtype.kind == "f" and bool(np.isfinite(array).all())):
        raise ValueError(f"want groups (n,) of finite numbers or words, got {array.dtype} or NaN in {file}")
    if array.size != clients:
        raise ValueError(f"want one group for each of {clients} clients, got {array.size} in {file}")
    if array.dtype.kind == "U":
        array = np.array([plain(str(word)) for word in array.reshape(-1)])
    return np.unique(array, return_inverse=True)[1].reshape(-1)
