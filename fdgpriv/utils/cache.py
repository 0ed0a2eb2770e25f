"""Does each thing once, however many threads ask for it at once."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class Cache(Generic[T]):
    """Remembers what was computed, by key.

    Who asks for what another thread is computing waits for it, and nobody else does. What raised is not remembered.

    Attributes:
        most: How many of the last asked for are kept; None for all.
    """

    most: int | None = None
    _known: OrderedDict[Hashable, Future[T]] = field(default_factory=OrderedDict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` gave for this key, now or before; raises what it raises."""
        with self._lock:
            known = self._known.get(key)
            mine = known is None
            found: Future[T] = Future() if known is None else known
            self._known[key] = found
            self._known.move_to_end(key)
            while self.most is not None and len(self._known) > self.most:
                self._known.popitem(last=False)
        if mine:
            try:
                found.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._known.pop(key, None)
                found.set_exception(error)
        return found.result()
