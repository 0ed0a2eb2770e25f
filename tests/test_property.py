"""Attacks on properties of clients where reading them takes a training: what they are told, and what they tell."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import Fitted, fit, shortened
from factories import evaluated, fitted_once, mean
from factories_core import model_state, observation, style
from torch import Tensor

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.evaluation.trial import AdversaryTrials, Trial
from fdgpriv.method import Method
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.client_size import SizeOfClient
from fdgpriv.tasks.images import Images
from fdgpriv.threat import threat
from fdgpriv.utils.cache import Cache

simulation: Any = import_module("fdgpriv.attacks._simulation")
client_size: Any = import_module("fdgpriv.attacks.client_size")
updates: Any = import_module("fdgpriv.attacks._updates")


@pytest.fixture(scope="module")
def averaged(digits: Dataset) -> Fitted:
    """FedAvg after two rounds, in batches of 4, twice over: four clients to a domain."""
    settings = {"rounds": "2", "local_epochs": "2", "batch_size": "4"}
    return fit(shortened(digits, 110), clients=12, method="fedavg", settings=settings, whole_network=True)


@pytest.mark.slow
def test_the_domain_is_read_from_the_change(averaged: Fitted) -> None:
    attack = Attack.named("domain_inference").configured({"expensive_simulations": 12})
    assert attack.sizes(averaged.evaluator().series("model_state")) == (1, None)
    scores = evaluated(averaged, attack, ModelState.kind, (None,))
    assert mean(scores[None]) > 0.6 > mean(scores[None], "random_style")
    assert mean(scores[None], "other_domain") < 0.3


@pytest.mark.slow
def test_one_label_is_read_from_the_change(averaged: Fitted) -> None:
    attack = Attack.named("label_histogram").configured({"expensive_simulations": 16})
    scores = evaluated(averaged, attack, ModelState.kind, (1,), per_client={1: 1})
    assert mean(scores[1]) < 1.2
    assert min(mean(scores[1], name) for name in ("public_shares", "random_style", "other_client")) > 1.4


@pytest.mark.slow
def test_revealed_batch_statistics_predict_images(digits: Dataset) -> None:
    """Of CCST, whose client trains on several copies of its image; of one image without copies no statistics are taken."""
    evaluator = fit(shortened(digits, 150), clients=6, method="ccst").evaluator()
    evaluator.per_client = {1: 1}
    (one,) = evaluator.adversaries(evaluator.series(ModelState.kind), threat("server"), (1,), Images())
    asked = [trial.by_role["attack"][0] for trial in one.trials]
    observations, truth = [each.observation for each in asked], torch.cat([each.truth.images for each in asked])

    def error(layers: slice) -> float:
        model = one.adversary.simulator(TrainingSimulator).network().eval()
        arguments = (one.adversary, model, observations, 1, layers, 120)
        (found,) = updates.uploads(*arguments)
        return float((found.prior[torch.tensor(found.indices).argsort(), 0] - truth).square().mean())

    mean_image = one.adversary.public_images[0].mean(0)
    assert error(slice(None)) < 0.9 * error(slice(0))
    assert error(slice(0)) < float((truth - mean_image).square().mean())


@pytest.mark.parametrize(("epochs", "batch"), [(1, 32), (2, 4), (5, 7)])
def test_steps_bound_the_number_of_images(epochs: int, batch: int) -> None:
    """n in [B t/E, B (t/E + 1)), or from 1 where one batch is all: against every number tried."""
    method = Method.named("fedavg").configured({"local_epochs": epochs, "batch_size": batch})
    for n in (1, batch - 1, batch, batch + 1, 5 * batch):
        seen = epochs * max(1, n // batch)
        assert method.steps(n) == seen
        able = [m for m in range(1, 300) if epochs * max(1, m // batch) == seen]
        first = batch * seen // epochs if seen > epochs else 1
        assert client_size.interval(method.steps, seen) == (able[0], able[-1])
        assert (able[0], able[-1]) == (first, batch * (seen // epochs + 1) - 1)
    ccst = Method.named("ccst").configured({"local_epochs": 1, "batch_size": 10, "augmentation": 3})
    assert ccst.steps(10) == 3  # the images that it adds are counted


@pytest.mark.slow
def test_counters_tell_the_client_s_size_to_a_batch(averaged: Fitted) -> None:
    scores = evaluated(averaged, "client_size", ModelState.kind, (1, None), per_client={1: 1})
    assert mean(scores[1]) == 0  # a single image leaves the counters alone, which tells of it
    assert max(scores[None].headline["attack"]) < 4 / 10
    assert mean(scores[1]) < min(mean(scores[1], "other_client"), mean(scores[1], "mean_image"))


@pytest.fixture(scope="module")
def counted(digits: Dataset) -> Fitted:
    """FedAvg after one round: four clients to a domain."""
    return fitted_once(shortened(digits, 110), clients=12, method="fedavg")


def test_a_shared_count_is_the_client_s_size(counted: Fitted) -> None:
    scores = evaluated(counted, "client_size", SampleCount.kind, per_client={1: 2, 2: 2, 5: 1})
    assert {error for size in scores for error in scores[size].headline["attack"]} == {0}
    assert all(mean(scores[size], name) > 0.1 for size in scores for name in ("noise", "random_style"))
    assert all(mean(scores[size], "other_client") > 0.1 for size in (1, 2, 5))  # whole clients are of like sizes here


def test_who_guesses_a_size_is_not_told_it(counted: Fitted) -> None:
    evaluator = counted.shared
    target = evaluator.series(SampleCount.kind)
    adversaries: list[AdversaryTrials] = evaluator.adversaries(target, threat("server"), (1, 5), SizeOfClient())
    trials: list[Trial] = list(adversaries[0].trials)
    asked = [one for trial in trials for ones in trial.by_role.values() for one in ones]
    assert {one.observation.n_images for one in asked} == {0}
    others = {
        int(one.observation.artifact.tensors()["count"]) for trial in trials for one in trial.by_role["other_client"]
    }
    assert others == {1, 5}
    (whole,) = evaluator.adversaries(target, threat("server"), (1, 5, None), SizeOfClient())
    controls = [one for trial in whole.trials if trial.size is None for one in trial.by_role["other_client"]]
    counts = {int(one.observation.artifact.tensors()["count"]) for one in controls}
    population = evaluator.population  # a whole client is compared with whole clients
    assert counts <= {len(population.data(name)) for name in (*population.clients, *population.shadows)}


@pytest.mark.parametrize(
    ("buffers", "reason"), [("keep_local", "no counter of BatchNorm crosses"), ("freeze", "stand still")]
)
def test_no_size_is_guessed_where_no_counter_counts(tiny: Dataset, buffers: str, reason: str) -> None:
    local = fit(tiny, clients=3, method="fedavg", settings={"buffers": buffers, "batch_size": "32"})
    said = Attack.named("client_size")().inapplicable(local.evaluator().series(ModelState.kind))
    assert said is not None
    assert reason in said


def test_the_typical_size_is_the_median_client_s(digits: Dataset) -> None:
    """Two clients to a domain, of 36 images, and two shadows, of fewer."""
    shadowed = fit(shortened(digits, 128), clients=6, method="fedavg")
    evaluator = shadowed.evaluator()
    (adversary_trials,) = evaluator.adversaries(evaluator.series("sample_count"), threat("server"), (1,))
    held = [*shadowed.population.clients.values(), *shadowed.population.shadows.values()]
    assert adversary_trials.adversary.typical == sorted(map(len, held))[len(held) // 2]
    assert torch.tensor([len(data) for data in held]).float().std() > 0


class Recorded:
    """An adversary of one domain that records which model each simulated client starts from."""

    seed, classes, needs_all_clients = 5, 10, False

    def __init__(self, images: Tensor) -> None:
        self.practice = (Domain("a", images, torch.arange(len(images)) % 10),)
        self.cache: Cache[Any] = Cache()
        self.started: list[ModelState | None] = []

    def simulate_jointly(self, parties: Any, rng: torch.Generator, received_model: ModelState | None) -> list[None]:
        self.started.append(received_model)
        return [None for _ in parties]

    def vector(self, artifact: None, received_model: ModelState | None) -> Tensor:
        return torch.full((3,), float(next(iter(received_model.state.values())).sum()) if received_model else 0.0)


def test_simulated_clients_start_from_received_models(rng: torch.Generator) -> None:
    """Each from one of them, and its vector is about that one; those observed several times count once."""
    models = [model_state(weight=torch.full((1,), float(i))) for i in (1, 2, 3)]
    observations = [replace(observation(style()), received_model=models[i]) for i in (0, 1, 1, 2, 0)]
    received = simulation.received_models(observations)
    assert received == tuple(models)
    adversary: Any = Recorded(torch.rand(20, 3, 4, 4, generator=rng))
    clients = simulation.simulated(adversary, 5, 30, received)
    assert {id(model) for model in adversary.started} == {id(model) for model in models}
    wanted = [float(next(iter(model.state.values()))) for model in adversary.started]
    assert [float(client.vector[0]) for client in clients] == wanted
    assert simulation.simulated(adversary, 5, 30, received)[0] is clients[0]  # remembered
    (only,) = {id(one) for one in simulation.received_models([observation(style())] * 3)}
    assert only == id(None)
