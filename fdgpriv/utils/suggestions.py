"""Finds the known name that a given one stands for: equal but for case, or the most similar."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar
from unicodedata import name as character_name

P = ParamSpec("P")
T = TypeVar("T")


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

    Characters beyond ASCII that the known name lacks are named, since some look like its own.

    Example:
        >>> did_you_mean("stabelfdg", ["fedavg", "stablefdg"])
        "; did you mean 'stablefdg'?"
    """
    by_letters = {_letters(candidate): candidate for candidate in known}
    close = get_close_matches(_letters(name), by_letters, 1)
    if not close:
        return ""
    similar = by_letters[close[0]]
    foreign = [character for character in dict.fromkeys(name) if not character.isascii() and character not in similar]
    names = [f" ({character!r} is {character_name(character, 'a character without a name')})" for character in foreign]
    return f"; did you mean {similar!r}?{''.join(names)}"


def _letters(name: str) -> str:
    """What counts of a name."""
    return name.lower().replace("_", "").replace("-", "")


def suggesting(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose error about an unknown argument suggests a known one."""
    known = list(signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **arguments: P.kwargs) -> T:
        for name in arguments:
            if name not in known:
                wanted = f"want an argument of {', '.join(known)}"
                raise TypeError(f"{function.__name__}: {wanted}; got {name!r}{did_you_mean(name, known)}")
        return function(*args, **arguments)

    return checked
