"""Finds the known name that a given one stands for: equal but for case, or the most similar."""

from collections.abc import Iterable
from difflib import get_close_matches


def same_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that equals `name`, or the only one that does but for case, hyphens and underscores; else None.

    Example:
        >>> same_name("StableFDG", ["fedavg", "stablefdg"])
        'stablefdg'
    """
    same = {candidate for candidate in known if _letters(candidate) == _letters(name)}
    return name if name in same else same.pop() if len(same) == 1 else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the most similar known one; empty if none is similar.

    Example:
        >>> did_you_mean("stabelfdg", ["fedavg", "stablefdg"])
        "; did you mean 'stablefdg'?"
    """
    by_letters = {_letters(candidate): candidate for candidate in known}
    close = get_close_matches(_letters(name), by_letters, 1)
    return f"; did you mean {by_letters[close[0]]!r}?" if close else ""


def _letters(name: str) -> str:
    """What counts of a name."""
    return name.lower().replace("_", "").replace("-", "")
