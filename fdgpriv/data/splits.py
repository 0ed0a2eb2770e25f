"""Finds splits of a dataset, as train and test, where folders of domains, clients or classes are wanted."""

from collections.abc import Iterable
from pathlib import Path

_PARTS = (
    "train",
    "training",
    "val",
    "valid",
    "validation",
    "dev",
    "development",
    "test",
    "testing",
    "eval",
    "evaluation",
)
_SPLITS = frozenset(part + ending for part in _PARTS for ending in ("", "set", "data", "images", "split"))


def splits_among(names: Iterable[str]) -> list[str]:
    """The names that are those of splits, if there are several: a single one may be the name of something else.

    Example:
        >>> splits_among(["Train", "val", "labels"]), splits_among(["train", "bus"])
        (['Train', 'val'], [])
    """
    splits = [name for name in names if "".join(filter(str.isalpha, name.lower())) in _SPLITS]
    return splits if len(splits) > 1 else []


def check_no_splits(names: Iterable[str], place: Path, wanted: str) -> None:
    """Raises ValueError if these names in `place`, where `wanted` is, are splits."""
    if splits := splits_among(names):
        raise ValueError(
            f"want {wanted} in {place}, got the splits {', '.join(splits)} instead: put the images of all splits, or those "
            "of one, together"
        )
