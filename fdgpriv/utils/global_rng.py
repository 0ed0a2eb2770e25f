"""Seeds torch's global generator, which initialises layers, for one thread at a time and restores it afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

MOST_SEEDS = 16
_LOCK = RLock()


@contextmanager
def global_draws(seed: int = 0) -> Iterator[None]:
    """Within, torch's global generator starts at `seed` and other users wait; its state is restored afterwards."""
    with _LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def drawing_from(rng: torch.Generator) -> Iterator[None]:
    """As `global_draws`, with a seed drawn from `rng`: makes layer initialisation reproducible."""
    with global_draws(draw_seed(rng)):
        yield


def draw_seed(rng: torch.Generator) -> int:
    """The seed that `drawing_from` draws from `rng`."""
    return int(torch.randint(2**63 - 1, (), generator=rng, device=rng.device))


def seeds_drawn(before: torch.Generator, after: torch.Generator) -> int | None:
    """How many seeds `drawing_from` drew from a generator; None if other numbers were drawn, or more than `MOST_SEEDS`.

    Args:
        before: A generator in the state before the draws; it is advanced.
        after: One in the state after them.
    """
    for count in range(MOST_SEEDS + 1):
        if torch.equal(before.get_state(), after.get_state()):
            return count
        draw_seed(before)
    return None
