"""Thread-safe memoisation by key with least-recently-used eviction."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor

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

    def forget(self, key: Hashable) -> None:
        """Removes what is cached for this key, if anything."""
        with self._lock:
            self._entries.pop(key, None)


@dataclass(eq=False)
class CacheOfTensors(Generic[T]):
    """Stores what is computed from tensors, by the tensors' identity; it does not keep the tensors.

    Attributes:
        most: As of `Cache`.
    """

    most: int | None = None
    _entries: "Cache[tuple[tuple[ref[Tensor], ...], T]]" = field(init=False)

    def __post_init__(self) -> None:
        self._entries = Cache(self.most)

    def get(self, tensors: tuple[Tensor, ...], key: Hashable, compute: Callable[[], T]) -> T:
        """The cached value of `compute()` for these very tensors and this key; raises what `compute` raises."""
        whole = (*map(id, tensors), key)

        def computed() -> tuple[tuple["ref[Tensor]", ...], T]:
            return tuple(map(ref, tensors)), compute()

        known, value = self._entries.get(whole, computed)
        if any(one() is not tensor for one, tensor in zip(known, tensors, strict=True)):
            self._entries.forget(whole)  # of a tensor that is gone and had the same address
            _, value = self._entries.get(whole, computed)
        return value
