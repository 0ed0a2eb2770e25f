"""Reads labels that a user gives: whole numbers of any type, one-hot rows, or names of classes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.user_names import plain

_SHOWN = 60  # characters of a label in an error


def given_labels(labels: Any, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """The labels (N,) int64, and the names of the classes in the order of their labels if labels are words.

    Args:
        labels: (N,) whole numbers, also as floats, truth values or digits; (N, K) one-hot; or (N,) names of classes, which
            are numbered in alphabetic order, as folders are.
        name: The name of the images in error messages.

    Raises:
        ValueError: They have another form.
    """
    values = _values(labels, name)
    if values.ndim == 2 and values.dtype.kind in "biuf":
        values = _of_rows(values, name)
    if values.ndim != 1:
        raise ValueError(f"{name}: want labels (N,), got {values.shape}")
    if values.dtype.kind == "U":
        return _of_words(values, name)
    if values.dtype.kind == "f":
        if not (np.isfinite(values) & (values == np.round(values))).all():
            odd = values[~(np.isfinite(values) & (values == np.round(values)))][0]
            raise ValueError(f"{name}: want labels (N,) of whole numbers, got {odd:g}")
    elif values.dtype.kind not in "biu":
        raise ValueError(f"{name}: want labels (N,) of whole numbers or names of classes, got {values.dtype}")
    return torch.from_numpy(values.astype(np.int64)), ()


def _values(labels: Any, name: str) -> NDArray[Any]:
    """The labels as an array of numbers or of text."""
    if isinstance(labels, Tensor):
        labels = labels.detach().to_dense().cpu() if labels.layout is not torch.strided else labels.detach().cpu()
        return np.asarray(labels.float() if labels.dtype == torch.bfloat16 else labels)
    try:
        entries = [_entry(label) for label in labels] if not isinstance(labels, np.ndarray) else labels.tolist()
        words = {isinstance(label, str) for label in entries}
        if len(words) > 1:
            raise ValueError("numbers and words")
        values = np.array(entries)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: want labels (N,) of one form, got {str(error)[:_SHOWN]}") from None
    return values if values.size else np.zeros(0, np.int64)


def _entry(label: Any) -> Any:
    """One label as a number, a word or a list."""
    if isinstance(label, bytes):
        return label.decode()
    return label.tolist() if isinstance(label, Tensor | np.ndarray | np.generic) else label


def _of_rows(values: NDArray[Any], name: str) -> NDArray[Any]:
    """The labels (N,) of one column, or of one-hot rows (N, K)."""
    if values.shape[1] == 1:
        column: NDArray[Any] = values[:, 0]
        return column
    if not (np.isin(values, (0, 1)).all() and (values.sum(1) == 1).all()):
        raise ValueError(
            f"{name}: want one label for each image, as numbers (N,) or one-hot (N, K), got rows {values.shape} with several "
            "classes or shares"
        )
    labels: NDArray[Any] = values.argmax(1)
    return labels


def _of_words(values: NDArray[Any], name: str) -> tuple[Tensor, tuple[str, ...]]:
    """The labels and the classes of names; digits are numbers."""
    words = [plain(str(value)) for value in values]
    if all(word.lstrip("-").isdecimal() for word in words):
        return torch.tensor([int(word) for word in words]), ()
    for word, value in zip(words, values, strict=True):
        check_name(str(value), f"{name}: labels")
        if not word:
            raise ValueError(f"{name}: want a name of a class for each image, got {str(value)!r}")
    classes = tuple(sorted(set(words)))
    return torch.tensor([classes.index(word) for word in words]), classes
