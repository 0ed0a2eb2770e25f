"""Things are computed once, whoever asks, and only what was asked for last is kept where that is wanted."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from weakref import ref

import pytest
import torch

from fdgpriv.utils.cache import Cache, CacheOfTensors, ObjectNumbers


def test_threads_share_one_computation():
    cache, calls, gate = Cache[int](), [], Barrier(8)

    def ask(_: int) -> int:
        gate.wait()
        return cache.get("key", lambda: calls.append(None) or 7)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [7] * 8
    assert len(calls) == 1


def test_another_key_does_not_wait():
    cache, release = Cache[str](), Event()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.get, "slow", lambda: str(release.wait(10)))
        assert cache.get("quick", lambda: "now") == "now"
        assert not slow.done()
        release.set()
        assert slow.result() == "True"


def test_an_error_is_not_remembered():
    cache = Cache[int]()
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 // 0)
    assert cache.get("key", lambda: 3) == 3


def test_only_the_last_asked_for_are_kept():
    cache, made = Cache[str](max_entries=2), []

    def get(key: str) -> str:
        return cache.get(key, lambda: made.append(key) or key)

    for key in ("a", "b", "a", "c", "a", "b"):
        assert get(key) == key
    assert made == ["a", "b", "c", "b"]


def test_values_have_at_most_so_many_bytes():
    cache, made = Cache[bytes](max_bytes=10, nbytes=len), []

    def get(key: str, size: int) -> None:
        assert cache.get(key, lambda: made.append(key) or bytes(size)) == bytes(size)

    for key, size in (("a", 4), ("b", 4), ("a", 4), ("c", 4), ("a", 4), ("b", 4), ("c", 4)):
        get(key, size)
    assert "".join(made) == "abcbc"  # c displaces b, which was asked for longer ago than a; b then c, and c then a
    get("large", 50)  # the latest value stays, alone
    get("large", 50)
    get("d", 4)
    get("large", 50)
    assert made[5:] == ["large", "d", "large"]
    cache.forget("large")
    for key in ("e", "f", "e"):  # what is forgotten takes no bytes
        get(key, 5)
    assert made[8:] == ["e", "f"]


def test_no_two_objects_have_one_number():
    numbers, first, ids = ObjectNumbers(), torch.ones(3), set()
    given = [numbers.of(first)]
    for _ in range(50):  # each lies where the deleted one before it lay
        tensor = torch.ones(3)
        ids.add(id(tensor))
        given.append(numbers.of(tensor))
        assert numbers.of(tensor) == given[-1]
        del tensor
    assert len(set(given)) == 51 > len(ids)
    assert numbers.of(first) == given[0]
    assert len(numbers._numbers) == 1


def test_tensors_are_told_apart_and_not_kept():
    cache = CacheOfTensors[float]()
    a, b, c = torch.ones(3), torch.ones(3), torch.ones(3)
    asked = [(a, b), (a, c), (a, b), (b, a)]
    assert [cache.get(pair, "", lambda n=n: n) for n, pair in enumerate(asked)] == [0, 1, 0, 3]
    assert cache.get((a, b), "another key", lambda: 4) == 4
    gone = ref(a)
    del a, asked
    assert gone() is None

    def total(tensor: torch.Tensor) -> float:
        return cache.get((tensor,), "", lambda: float(tensor.sum()))

    for number in range(2, 50):  # some of these have an address that was another's
        assert total(torch.full((3,), number)) == 3.0 * number
