"""The global generator of torch: one thread at a time, and as it was afterwards.

That trainings leave it alone is asked of every method in test_every_method.py.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from fdgpriv.utils.global_rng import MOST_SEEDS, drawing_from, global_draws, seeds_drawn
from fdgpriv.utils.seeds import generator


def drawn(seed: int) -> list[Tensor]:
    """Many numbers of one seed, in parts, between which another thread has time to disturb."""
    with drawing_from(torch.Generator().manual_seed(seed)):
        return [torch.rand(8) for _ in range(200)]


def test_threads_draw_what_each_alone_would() -> None:
    alone = [drawn(seed) for seed in range(16)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(drawn, range(16)))
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert not torch.equal(alone[0][0], alone[1][0])


def test_nested_use_restores_the_outer_state() -> None:
    with global_draws(5):
        plain = torch.rand(4)
    with global_draws(5):
        with global_draws(6):
            inner = torch.rand(2)
        assert torch.equal(torch.rand(4), plain)
    assert not torch.equal(inner, plain[:2])


@pytest.fixture
def state() -> Iterator[Tensor]:
    """The global generator's state before a test, put back after it."""
    before = torch.get_rng_state()
    yield before
    torch.set_rng_state(before)


def test_a_draw_outside_would_show(state: Tensor) -> None:
    torch.nn.Linear(2, 2)
    assert not torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("count", [0, 1, 3, MOST_SEEDS])
def test_seeds_are_counted(count: int) -> None:
    rng = generator(7)
    for _ in range(count):
        with drawing_from(rng):
            torch.nn.Linear(2, 2)
    assert seeds_drawn(generator(7), rng) == count


def test_other_draws_are_no_seeds() -> None:
    rng = generator(7)
    torch.rand(1, generator=rng)
    assert seeds_drawn(generator(7), rng) is None
    assert seeds_drawn(generator(8), generator(7)) is None
