"""Double-ended work queue; reduces contention on shared intermediates."""

from collections import deque
from collections.abc import Iterable
from threading import Lock, get_ident
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkQueue(Generic[T]):
    """A queue from which threads take alternately at the front and the back: the first thread at the front, the second
    at the back, and so on.

    Neighbouring items often need the same intermediate; two threads at one end would wait for each other.

    Args:
        items: The work items, in order.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._items = deque(items)
        self._threads: dict[int, int] = {}  # thread identifier: index in order of first access
        self._lock = Lock()

    def take(self) -> T:
        """Removes and returns the next item at this thread's end; raises IndexError if the queue is empty."""
        with self._lock:
            index = self._threads.setdefault(get_ident(), len(self._threads))
            return self._items.pop() if index % 2 else self._items.popleft()
