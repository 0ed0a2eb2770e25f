"""Style statistics that were made elsewhere, read from files without pickle: .npz, .safetensors, or mean.npy and std.npy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ForeignStyles:
    """One style of each client.

    Attributes:
        name: The file's, without its suffix.
        mean, std: (n, C) float64, in the files' own units.
        groups: (n,) the domain of each client, as far as the user knows; None where unknown.
    """

    name: str
    mean: Array
    std: Array
    groups: NDArray[np.int64] | None

    @property
    def vectors(self) -> Array:
        """(n, 2C): mean and std side by side, unscaled."""
        return np.concatenate([self.mean, self.std], axis=1)


def read(files: Sequence[Path], sizes: Sequence[int] = ()) -> ForeignStyles:
    """The styles in these files.

    Args:
        files: One ``.npz`` or ``.safetensors`` with arrays ``mean`` and ``std`` and perhaps ``groups``; or two ``.npy``,
            the means before the standard deviations.
        sizes: Clients of each domain, in the files' order; empty for ``groups`` of the file, or none.

    Raises:
        ValueError: The files do not hold that, or hold NaN, or the sizes do not add up to the number of clients.
    """
    arrays = _arrays(files)
    if "mean" not in arrays or "std" not in arrays:
        raise ValueError(
            f"--artifact: want arrays mean and std in {files[0]}, got {', '.join(sorted(arrays)) or 'none'}"
        )
    mean, std = (_table(arrays[name], name, files[0]) for name in ("mean", "std"))
    if mean.shape != std.shape:
        raise ValueError(f"--artifact: want mean and std of one shape (n, C), got {mean.shape} and {std.shape}")
    if bool((std < 0).any()):
        raise ValueError(f"--artifact: want standard deviations of at least 0, got {std.min():.4g} in {files[-1]}")
    groups: NDArray[np.int64] | None = None
    if sizes:
        if sum(sizes) != len(mean) or min(sizes) < 1:
            raise ValueError(
                f"--groups: want positive sizes that add up to {len(mean)} clients, got {'+'.join(map(str, sizes))}"
            )
        groups = np.repeat(np.arange(len(sizes)), sizes)
    elif "groups" in arrays:
        groups = np.unique(arrays["groups"], return_inverse=True)[1].reshape(-1)
        if len(groups) != len(mean):
            raise ValueError(f"--artifact: want one of groups for each of {len(mean)} clients, got {len(groups)}")
    return ForeignStyles(files[0].stem.removesuffix("_mean"), mean, std, groups)


def _arrays(files: Sequence[Path]) -> Mapping[str, NDArray[np.generic]]:
    try:
        if len(files) == 2:
            return {name: np.load(file, allow_pickle=False) for name, file in zip(("mean", "std"), files, strict=True)}
        if len(files) == 1 and files[0].suffix == ".safetensors":
            return dict(load_file(files[0]))
        if len(files) == 1 and files[0].suffix == ".npz":
            with np.load(files[0], allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, SafetensorError) as error:
        raise ValueError(
            f"--artifact: want arrays in {', '.join(map(str, files))}, got a damaged file ({error})"
        ) from None
    raise ValueError(
        f"--artifact: want one .npz or .safetensors, or mean.npy and std.npy; got {' '.join(map(str, files))}"
    )


def _table(array: NDArray[np.generic], name: str, file: Path) -> Array:
    """(n, C), whatever singleton axes follow."""
    if array.ndim < 2 or array.dtype.kind not in "fiu" or any(side != 1 for side in array.shape[2:]):
        raise ValueError(f"--artifact: want {name} (n, C) of numbers, got {array.shape} {array.dtype} in {file}")
    table = array.reshape(len(array), -1).astype(np.float64)
    if len(table) < 2 or not np.isfinite(table).all():
        raise ValueError(f"--artifact: want at least 2 clients and finite numbers, got {array.shape} in {file}")
    return table
