"""Seeds torch's global generator, which initialises layers, for one thread at a time and restores it afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

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
    seed = int(torch.randint(2**63 - 1, (), generator=rng, device=rng.device))
    with global_draws(seed):
        yield
