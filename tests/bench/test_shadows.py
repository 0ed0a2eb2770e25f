"""What shadow models cost, in trainings of one model, and shadow federations, in the run's own. Prints; `make bench`."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Any

import pytest
import torch

from fdgpriv import data
from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.config import AuditConfig
from fdgpriv.defense import Defense
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import populate
from fdgpriv.federation.wire import Wire
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.threat import threat
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator

pytestmark = pytest.mark.bench
COUNT, REPEATS = 16, 3
FEW = {"rounds": "2", "local_epochs": "1"}  # what a training costs beside its steps weighs more in few

shadows: Any = import_module("fdgpriv.attacks._shadow_models")


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
    config = AuditConfig().checked()
    dataset = data.load("digits")
    population = populate(dataset, dataset.default_target, "single", 15, 0)
    federation = config.federation(dataset, list(population.clients), 0)
    like = population.clients["client-00"]
    simulator = TrainingSimulator(
        ModelState.kind, config.method("fedavg"), federation, Defense.named("none")(), like, 0
    )
    sent = ModelState.of(simulator.network(), SERVER, 0)
    for size in (1, 2, 5, 20, 64):
        held = ClientImages(like.images[:size], like.labels[:size], sent)
        many, seeds = [held] * COUNT, list(range(COUNT))
        one = typical(partial(simulator.trained, ClientSample.all_of(held), generator(0)))
        loop = typical(partial(shadows.train_separately, simulator, many, seeds))
        together = typical(partial(shadows.train_jointly, simulator, many, seeds))
        with capsys.disabled():
            print(
                f"\n{COUNT} shadows of {size} images / one model: together {together / one:.1f}, "
                f"one by one {loop / one:.1f} (goal: at most 4)"
            )


@pytest.mark.parametrize("method", ["fedavg", "stablefdg"])
def test_shadow_federations(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both on one core."""
    torch.set_num_threads(1)
    config = AuditConfig(methods=(method,), settings=FEW).checked()
    dataset, none = data.load("digits"), Defense.named("none")()
    population = populate(dataset, dataset.default_target, "single", 15, 1)
    federation, part = config.federation(dataset, list(population.clients), 1), config.method(method)
    sizes = {name: len(own) for name, own in population.clients.items()}
    wire = Wire(sizes, none)
    LocalEngine(1).run(part, federation, population.clients, wire)  # warms up
    evaluator = Evaluator(population, part, federation, none, wire.transcript, 1)
    adversary_trials = evaluator.adversaries(evaluator.series("global_model"), threat("server"), (None,))[0]
    ratios = []
    for _ in range(REPEATS):
        start = perf_counter()
        LocalEngine(1).run(part, federation, population.clients, Wire(sizes, none))
        one = perf_counter() - start
        adversary = replace(adversary_trials.adversary, cache=Cache())
        start = perf_counter()
        made = shadows.shadow_federations(adversary, COUNT)
        ratios.append((perf_counter() - start) / one)
    with capsys.disabled():
        print(
            f"\n{COUNT} shadow federations of {method}, of {int(made[0].saw.sum())} images each / one training: "
            f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}, n={REPEATS}; goal: at most 4)"
        )
