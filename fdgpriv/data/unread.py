"""Counts the entries of a dataset's folder that are not read, by reason."""

from collections.abc import Iterable
from pathlib import Path

HIDDEN = "hidden (names that begin with . or __MACOSX)"
CIRCLE = "links to folders that they lie in"
OUTSIDE = "files outside the folders of classes"
NO_IMAGE = "files without the name of an image"
INSIDE = "folders inside the folders of classes"
NESTED = "images in folders inside the folders of classes"
_MOST_SUFFIXES = 5


class Unread:
    """The entries below `root` that are not read; an entry that is added twice counts once.

    Args:
        root: The dataset's folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._entries: dict[str, dict[Path, None]] = {}

    def add(self, reason: str, paths: Iterable[Path]) -> None:
        """Adds entries that are not read for this reason, a noun in the plural."""
        self._entries.setdefault(reason, {}).update(dict.fromkeys(paths))

    def summary(self, examples: bool = False) -> str:
        """The counts by reason, with the first entry of each if `examples`; empty if everything is read."""
        return "; ".join(
            f"{reason}{_suffixes(reason, paths)}: {len(paths):,}"
            + (f", e.g. {self._example(paths)}" if examples else "")
            for reason, paths in self._entries.items()
            if paths
        )

    def _example(self, paths: Iterable[Path]) -> str:
        first = min(paths)
        return str(first.relative_to(self.root) if first.is_relative_to(self.root) else first)


def _suffixes(reason: str, paths: Iterable[Path]) -> str:
    """The file types among files that are no images by their names."""
    if reason != NO_IMAGE:
        return ""
    suffixes = sorted({path.suffix.lower() or "no suffix" for path in paths})
    more = ", ..." if len(suffixes) > _MOST_SUFFIXES else ""
    return f" ({', '.join(suffixes[:_MOST_SUFFIXES])}{more})"
