"""Suppresses warnings thread-safely; Python's `warnings.catch_warnings` alone is not thread-safe."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_LOCK = RLock()


@contextmanager
def warnings_ignored(category: type[Warning] = Warning) -> Iterator[None]:
    """Within, warnings of this category are ignored; one thread at a time."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield
