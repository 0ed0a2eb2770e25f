"""Work taken from both ends: each thing once, each thread at an end of its own."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from fdgpriv.two_ends import TwoEnds


def test_one_thread_takes_all_from_the_front() -> None:
    row = TwoEnds("abc")
    assert [row.take() for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(IndexError):
        row.take()


def test_two_threads_take_from_an_end_each() -> None:
    row, both = TwoEnds(range(10)), Barrier(2)

    def work(_: int) -> list[int]:
        both.wait()
        taken = [row.take()]
        both.wait()  # each has an end now
        return taken + [row.take() for _ in range(3)]

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(work, range(2))) == [[0, 1, 2, 3], [9, 8, 7, 6]]


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_everything_is_taken_once(threads: int) -> None:
    row = TwoEnds(range(200))
    with ThreadPoolExecutor(threads) as pool:
        taken = list(pool.map(lambda _: row.take(), range(200)))
    assert sorted(taken) == list(range(200))
