"""Work taken from both ends: each thing once, each thread at an end of its own."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from fdgpriv.utils.work_queue import WorkQueue


def test_one_thread_takes_all_from_the_front() -> None:
    queue = WorkQueue("abc")
    assert [queue.take() for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(IndexError):
        queue.take()


def test_two_threads_take_from_an_end_each() -> None:
    queue, both = WorkQueue(range(10)), Barrier(2)

    def work(_: int) -> list[int]:
        both.wait()
        taken = [queue.take()]
        both.wait()  # each has an end now
        return taken + [queue.take() for _ in range(3)]

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(work, range(2))) == [[0, 1, 2, 3], [9, 8, 7, 6]]


def test_everything_is_taken_once() -> None:
    queue = WorkQueue(range(200))
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: queue.take(), range(200)))
    assert sorted(taken) == list(range(200))
