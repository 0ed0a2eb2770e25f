"""Thread-safe memoisation by key with least-recently-used eviction."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from sys import getsizeof
from threading import Lock, RLock
from typing import Any, Generic, TypeVar
from weakref import ref

from torch import Tensor

T = TypeVar("T")


@dataclass(eq=False)
class Cache(Generic[T]):
    """Stores computed values by key; each is computed once.

    A thread that requests a key which another thread is computing waits for that result. Exceptions are not cached.

    The least recently used entries are evicted first.

    Attributes:
        max_entries: Largest number of entries; None for no limit.
        max_bytes: Largest size of all values together, of which the latest stays whatever its size is; None for no limit.
        nbytes: Gives the size of a value; called only with a limit of bytes.
    """

    max_entries: int | None = None
    max_bytes: int | None = None
    nbytes: Callable[[T], int] = getsizeof
    _entries: OrderedDict[Hashable, Future[T]] = field(default_factory=OrderedDict, init=False)
    _sizes: dict[Hashable, int] = field(default_factory=dict, init=False)
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
                self._remove(next(iter(self._entries)))
        if is_new:
            try:
                result.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._remove(key)
                result.set_exception(error)
            else:
                if self.max_bytes is not None:
                    self._evict(key, self.nbytes(result.result()), self.max_bytes)
        return result.result()

    def _evict(self, latest: Hashable, size: int, limit: int) -> None:
        """Removes computed values until they have at most `limit` bytes together with the latest one, of `size` bytes."""
        with self._lock:
            if latest in self._entries:
                self._sizes[latest] = size
            total = sum(self._sizes.values())
            for key in [key for key in self._entries if key in self._sizes and key != latest]:
                if total <= limit:
                    break
                total -= self._sizes[key]
                self._remove(key)

    def _remove(self, key: Hashable) -> None:
        self._entries.pop(key, None)
        self._sizes.pop(key, None)

    def forget(self, key: Hashable) -> None:
        """Removes the value cached for this key, if there is one."""
        with self._lock:
            self._remove(key)


class ObjectNumbers:
    """Numbers objects from 0: one object has one number, which no other object has, not even after its deletion."""

    def __init__(self) -> None:
        self._numbers, self._next, self._lock = dict[int, tuple[ref[Any], int]](), count(), RLock()

    def of(self, numbered: object) -> int:
        """The number of this very object."""
        key = id(numbered)
        with self._lock:
            entry = self._numbers.get(key)
            if entry is None or entry[0]() is not numbered:
                entry = self._numbers[key] = ref(numbered, lambda deleted: self._forget(key, deleted)), next(self._next)
            return entry[1]

    def _forget(self, key: int, deleted: "ref[Any]") -> None:
        """Removes the entry of a deleted object, unless its id is already another object's."""
        with self._lock:
            if key in self._numbers and self._numbers[key][0] is deleted:
                del self._numbers[key]


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
