"""Suppresses warnings thread-safely, as `warnings.catch_warnings` alone does not; prints them as one line for commands."""

import sys
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


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Within, warnings are printed on stderr without their place in the source code."""
    original = warnings.showwarning
    warnings.showwarning = _show
    never_errors()
    try:
        yield
    finally:
        warnings.showwarning = original


def never_errors() -> None:
    """Undoes PYTHONWARNINGS=error and -W error, with which warnings of libraries would end a run."""
    actions = [option.partition(":")[0] for option in sys.warnoptions]
    if any(action and "error".startswith(action) for action in actions):
        warnings.resetwarnings()
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)  # as without any option


def _show(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"warning: {message}\n")
