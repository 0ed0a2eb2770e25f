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
        max_entries: Largest number of entries, least recently used evicted first; None for no limit.
    """

    max_entries: int | None = None
    _entries: OrderedDict[Hashable, Future[T]] = field(default_factory=OrderedDict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The cached value of `compute()` for this key; raises what `compute` raises."""
        with self._lock:
            existing = self._entries.get(key)
            is_new = existing is None
            result: Future[T] = Future() if existing is None else existing
            self._entries[key] = result
            self._entries.move_to_end(key)
            while self.max_entries is not None and len(self._entries) > self.max_entries:
                self._entries.popitem(last=False)
        if is_new:
            try:
                result.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._entries.pop(key, None)
                result.set_exception(error)
        return result.result()

    def forget(self, key: Hashable) -> None:
        """Removes the value cached for this key, if there is one."""
        with self._lock:
            self._entries.pop(key, None)


@dataclass(eq=False)
class CacheOfTensors(Generic[T]):
    """Stores values computed from tensors, by the tensors' identity, without references to the tensors.

    Attributes:
        max_entries: As in `Cache`.
    """

    max_entries: int | None = None
    _entries: "Cache[tuple[tuple[ref[Tensor], ...], T]]" = field(init=False)

    def __post_init__(self) -> None:
        self._entries = Cache(self.max_entries)

    def get(self, tensors: tuple[Tensor, ...], key: Hashable, compute: Callable[[], T]) -> T:
        """The cached value of `compute()` for these very tensors and this key; raises what `compute` raises."""
        full_key = (*map(id, tensors), key)

        def computed() -> tuple[tuple["ref[Tensor]", ...], T]:
            return tuple(map(ref, tensors)), compute()

        references, value = self._entries.get(full_key, computed)
        if any(reference() is not tensor for reference, tensor in zip(references, tensors, strict=True)):
            self._entries.forget(full_key)  # the entry of a deleted tensor that had the same id
            _, value = self._entries.get(full_key, computed)
        return value
