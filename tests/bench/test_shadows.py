"""What shadow models cost, in trainings of one model, trained together and one by one. Prints; `make bench`."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Any

import pytest
import torch

from fdgpriv import data
from fdgpriv.artifact import SERVER, ModelState
from fdgpriv.federation import generator
from fdgpriv.partition import populate
from fdgpriv.plan import Plan
from fdgpriv.roles import Defense
from fdgpriv.subjects import Holding, TrainingCraft

pytestmark = pytest.mark.bench
COUNT, REPEATS = 16, 3

shadows: Any = import_module("fdgpriv.attacks._shadows")


def typical(measure: Callable[[], object]) -> float:
    """Median seconds, after one call that warms up."""
    measure()
    seconds = []
    for _ in range(REPEATS):
        start = perf_counter()
        measure()
        seconds.append(perf_counter() - start)
    return median(seconds)


def test_shadows(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    plan = Plan().checked()
    dataset = data.load("digits")
    population = populate(dataset, dataset.default_target, "single", 15, 0)
    federation = plan.federation(dataset, list(population.clients), 0)
    like = population.clients["client-00"]
    craft = TrainingCraft(ModelState.kind, plan.method("fedavg"), federation, Defense.named("none")(), like, 0)
    sent = ModelState.of(craft.network(), SERVER, 0)
    for size in (1, 2, 5, 20, 64):
        held = Holding(like.images[:size], like.labels[:size], sent)
        many, seeds = [held] * COUNT, list(range(COUNT))
        index = torch.arange(size)
        one = typical(partial(craft.trained, held, index, generator(0)))
        loop = typical(partial(shadows.train_one_by_one, craft, many, seeds))
        together = typical(partial(shadows.train_together, craft, many, seeds))
        with capsys.disabled():
            print(
                f"\n{COUNT} shadows of {size} images / one model: together {together / one:.1f}, "
                f"one by one {loop / one:.1f} (goal: at most 4)"
            )
