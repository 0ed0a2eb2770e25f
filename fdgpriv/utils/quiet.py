"""Keeps a library's warnings to itself, where evaluations run side by side: Python's own way is for one thread only."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_TURN = RLock()


@contextmanager
def quietly(category: type[Warning] = Warning) -> Iterator[None]:
    """Within, warnings of this category are not shown; one thread at a time."""
    with _TURN, warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield
