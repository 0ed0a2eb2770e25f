"""Draws from torch's global generator, which initialises layers and is one for all threads: one thread at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_TURN = RLock()


@contextmanager
def global_draws(seed: int = 0) -> Iterator[None]:
    """Within, torch's global generator begins at `seed` and is this thread's own; afterwards it is as it was."""
    with _TURN, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def drawing_from(rng: torch.Generator) -> Iterator[None]:
    """Within, torch's initialisations draw from one seed taken from `rng`, as `global_draws` has it."""
    seed = int(torch.randint(2**63 - 1, (), generator=rng, device=rng.device))
    with global_draws(seed):
        yield
