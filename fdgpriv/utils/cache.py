"""Thread-safe memoisation by key with least-recently-used eviction."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class Cache(Generic[T]):
    """Stores computed values by key; each is computed once.

    A thread that requests a key which another thread is computing waits for that result. Exceptions are not cached.

    Attributes:
        most: Maximum number of entries, least recently used evicted first; None for no limit.
    """

    most: int | None = None
    _entries: OrderedDict[Hashable, Future[T]] = field(default_factory=OrderedDict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The cached value of `compute()` for this key; raises what `compute` raises."""
        with self._lock:
            entry = self._entries.get(key)
            is_new = entry is None
            found: Future[T] = Future() if entry is None else entry
            self._entries[key] = found
            self._entries.move_to_end(key)
            while self.most is not None and len(self._entries) > self.most:
                self._entries.popitem(last=False)
        if is_new:
            try:
                found.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._entries.pop(key, None)
                found.set_exception(error)
        return found.result()
