"""How many cores a run uses."""

import os

import pytest

from fdgpriv.utils.environment import usable_cores


def test_cores_out_of_reach_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("only Linux restricts a process to cores")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = os.sched_getaffinity(0)
    assert usable_cores() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == os.cpu_count()


@pytest.mark.parametrize(
    ("asked", "cores"), [("3", 3), ("1", 1), ("2,4", 2), ("9", 6), ("", 6), ("0", 6), ("x", 6), ("-1", 6)]
)
def test_omp_num_threads_limits_the_cores(asked: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert usable_cores() == cores
