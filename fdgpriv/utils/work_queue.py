"""Work that threads take from both ends, so that those side by side have little in common."""

from collections import deque
from collections.abc import Iterable
from threading import Lock, get_ident
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkQueue(Generic[T]):
    """A row of things to do: the first thread that asks takes the first of it, the second the last, and so on in turn.

    Where neighbours need the same thing made first, two threads at one end would wait for each other.

    Args:
        row: The things.
    """

    def __init__(self, row: Iterable[T]) -> None:
        self._row = deque(row)
        self._turn: dict[int, int] = {}
        self._lock = Lock()

    def take(self) -> T:
        """The next one, at the end that this thread takes from; IndexError where none is left."""
        with self._lock:
            turn = self._turn.setdefault(get_ident(), len(self._turn))
            return self._row.pop() if turn % 2 else self._row.popleft()
