"""Gradient inversion: labels exactly, one image from one step, nothing from noise, and a budget too small says so."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TARGET, Evaluator, fit, shortened
from factories import inferred
from factories_scores import conditions
from torch import Tensor, nn
from torch.func import functional_call

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.attack import Attack
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.evaluation.attack_evaluation import attack_scores
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import populate
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.images import Images
from fdgpriv.threat import threat
from fdgpriv.utils.global_rng import drawing_from
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.judge import judge
from fdgpriv.verdicts.trial_scores import TrialScores

averaging: Any = import_module("fdgpriv.methods._averaging")
labels: Any = import_module("fdgpriv.attacks._updates")
batch_labels: Any = import_module("fdgpriv.attacks._batch_labels")
simulation: Any = import_module("fdgpriv.attacks._simulation")
latent_prior: Any = import_module("fdgpriv.attacks._latent_prior")


class SmallCnn(nn.Module):
    """Two convolutions and a linear layer, without BatchNorm."""

    def __init__(self, classes: int, rng: torch.Generator) -> None:
        super().__init__()
        with drawing_from(rng):
            self.one, self.two = nn.Conv2d(3, 16, 5, 2, 2), nn.Conv2d(16, 16, 5, 2, 2)
            self.head = nn.Linear(16 * 8 * 8, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.sigmoid(self.two(torch.sigmoid(self.one(images)))).flatten(1))
        return logits


@dataclass(frozen=True)
class OneStep(averaging.FederatedAveraging):  # type: ignore[misc]
    """FedSGD on that network: a client's update is one gradient of all its images."""

    rounds: int = 1
    participants: int | None = None
    local_epochs: int = 1
    batch_size: int = 10_000
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return SmallCnn(federation.classes, rng)


@pytest.fixture(scope="module")
def evaluator(digits: Dataset) -> Evaluator:
    """Twelve clients of eight images, one image of each asked about."""
    dataset = replace(shortened(digits, 60), translate=0.0)
    population = populate(dataset, TARGET, "single", 12, 0)
    config = AuditConfig(methods=("fedavg",), preset="quick", clients=12, device="cpu").checked()
    federation = config.federation(dataset, list(population.clients), 0)
    none, transcript = Defense.named("none")(), Transcript("ends")
    wire = Wire({name: len(held) for name, held in population.clients.items()}, none, transcript)
    LocalEngine(1).run(OneStep(), federation, population.clients, wire)
    return Evaluator(population, OneStep(), federation, none, transcript, 0, {1: 1})


def attack(**settings: Any) -> Attack:
    return Attack.named("gradient_inversion").configured(
        {"bn": 0.0, "prior": 0.0, "tv": 0.0, "lr": 0.1, "signed": True, **settings}
    )


def adversaries_of(evaluator: Evaluator) -> list[AdversaryTrials]:
    target = evaluator.series(ModelState.kind)
    return evaluator.adversaries(target, threat("server"), (1,), Images())


def finding_of(evaluator: Evaluator, part: Attack, adversaries: list[AdversaryTrials]) -> tuple[Any, TrialScores]:
    few = [AdversaryTrials(one.adversary, one.trials[:8]) for one in adversaries]
    scores = evaluate_trials(part, few, (1,), generator(3))[0][1]
    one = attack_scores(
        part, threat("server"), ModelState.kind, level="image", shared=True, conditions=conditions({1: scores})
    )
    return judge({"run/one": one}, 0).findings["run/one"], scores


@pytest.mark.slow
def test_one_image_of_one_step_is_recovered_with_its_label(evaluator: Evaluator) -> None:
    """The positive control."""
    found, scores = finding_of(evaluator, attack(steps=60), adversaries_of(evaluator))
    assert np.mean(scores.headline["attack"]) > 20
    assert set(scores.details["labels_right"]["attack"]) == {1.0}
    assert found.leakage["client"].verdict == "leak"


def test_images_are_learned_from_latents_alone(evaluator: Evaluator) -> None:
    """The received model's latents of public images are enough where clients train few steps."""
    found, _ = finding_of(evaluator, attack(steps=1, simulations=2), adversaries_of(evaluator))
    assert found.positive_control is not None
    assert found.positive_control.succeeded


def test_nothing_is_recovered_from_noise(evaluator: Evaluator) -> None:
    """An artifact of noise has the norm of a true one, and no image behind it."""
    (adversary_trials,) = adversaries_of(evaluator)
    (one,) = adversary_trials.trials[0].by_role["attack"]
    assert one.observation.received_model is not None
    sent = one.observation.received_model.state
    rng = generator(1)
    noise = {name: tensor + 1e-3 * torch.randn(tensor.shape, generator=rng) for name, tensor in sent.items()}
    observation = replace(one.observation, sent=ModelState(client="x", round=0, state=noise))
    part = attack(steps=20)
    (prediction,), baselines = inferred(part, adversary_trials.adversary, [observation], generator(2))
    scored = part.task.score([prediction, *baselines["mean_image"]], [one.truth] * 2)
    assert float(scored[0]) < float(scored[1])


def change_of(model: nn.Module, images: Tensor, told: Tensor) -> dict[str, Tensor]:
    loss = nn.functional.cross_entropy(model(images), told)
    return dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters())), strict=True))


def test_labels_are_dealt_out_by_largest_remainders(
    rng: torch.Generator,
) -> None:
    for label in range(10):
        change = change_of(SmallCnn(10, rng), torch.rand(1, 3, 32, 32, generator=rng), torch.tensor([label]))
        assert int(batch_labels.bias_change(change, list(change)[-2:]).argmin()) == label
    assert labels.labels_of(torch.tensor([0.5, 0.3, 0.2]), 4).tolist() == [0, 0, 1, 2]
    assert labels.labels_of(torch.tensor([0.0, 1.0, 0.0]), 3).tolist() == [1, 1, 1]


def test_label_counts_include_each_present_class(rng: torch.Generator) -> None:
    """Against every tuple of four counts."""
    for _ in range(30):
        expected = 5 * torch.rand(4, generator=rng).softmax(0)
        present = torch.rand(4, generator=rng) < 0.4
        able = [c for c in product(range(6), repeat=4) if sum(c) == 5 and all(c[i] for i in present.nonzero()[:, 0])]
        nearest = min(float((expected - torch.tensor(c)).square().sum()) for c in able)
        found = batch_labels.allocated(expected, 5, present)
        assert tuple(found.int().tolist()) in able
        assert float((expected - found).square().sum()) == pytest.approx(nearest, abs=1e-6)
    assert batch_labels.allocated(torch.tensor([3.0, 2.0, 1.0]), 2, torch.ones(3) > 0).tolist() == [1, 1, 0]


def test_labels_of_eight_images_are_read_from_a_step(evaluator: Evaluator) -> None:
    """The negative control has the norms of a true change, tensor by tensor, and no image behind it."""
    (adversary_trials,) = adversaries_of(evaluator)
    target, adversary = evaluator.series(ModelState.kind), adversary_trials.adversary
    received_model = next(iter(target.received_model.values()))
    estimator = batch_labels.LabelEstimator(adversary, received_model, 8, 20)

    def noise(trained: ModelState, rng: torch.Generator) -> ModelState:
        state = {}
        for name, tensor in trained.state.items():
            random = torch.randn(tensor.shape, generator=rng)
            change = tensor - received_model.state[name]
            state[name] = received_model.state[name] + random * change.norm() / random.norm()
        return replace(trained, state=state)

    right: dict[str, list[float]] = {"true": [], "noise": []}
    for turn, data in enumerate(evaluator.population.clients.values()):
        rng = generator(4, turn)
        index = simulation.skewed(data, adversary.classes, 8, 0.5, rng)
        sent = target.simulator.simulate(
            ClientSample(ClientImages(data.images, data.labels, received_model), index), rng
        )
        shares = data.labels[index].bincount(minlength=adversary.classes) / len(index)
        for name, artifact in (("true", sent), ("noise", noise(sent, rng))):
            found = estimator(artifact)
            assert float(found.sum()) == pytest.approx(1)
            right[name].append(1 - float((found - shares).abs().sum()) / 2)
    assert np.mean(right["true"]) > 0.9
    assert np.mean(right["noise"]) < 0.6


@pytest.mark.slow
def test_latents_are_read_under_revealed_statistics(digits: Dataset) -> None:
    """The negative control: under the statistics of the received model, which is new."""
    settings = {"batch_size": "90", "momentum": "0", "weight_decay": "0", "image_changes": "none"}
    evaluator = fit(
        shortened(digits, 90), clients=6, method="fedavg", settings=settings, whole_network=True
    ).evaluator()
    target = evaluator.series(ModelState.kind)
    evaluator.per_client = {4: 1}
    adversary = evaluator.adversaries(target, threat("server"), (4,), Images())[0].adversary
    received_model = next(iter(target.received_model.values()))
    seen, truth, told = [], [], []
    for turn, client in enumerate(evaluator.population.clients.values()):
        index = torch.randperm(len(client), generator=generator(5, turn))[:4]
        index = index[client.labels[index].argsort()]
        made = target.simulator.simulate(
            ClientSample(ClientImages(client.images, client.labels, received_model), index), generator(6, turn)
        )
        seen.append(Observation(made, 4, torch.zeros(1, 0), torch.zeros(0), received_model))
        truth.append(client.images[index])
        told.append(client.labels[index])
    model = network(adversary)
    (found,) = labels.uploads(adversary, model, seen, 4, slice(None), 20)
    false = {name: (0 * m, 0 * v + 1) for name, (m, v) in found.moments.items()}

    def error(moments: Any) -> float:
        drawn = latent_prior.images_of_one_step(adversary, model, found.changes, torch.stack(told), moments)
        return float((drawn - torch.stack(truth)).square().mean())

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    public_error = float((adversary.public_images[0].mean(0) - torch.stack(truth)).square().mean())
    assert error(found.moments) < 0.93 * min(public_error, error(false))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_unrolled_steps_are_those_of_plain_sgd(rng: torch.Generator) -> None:
    """Against torch's own optimiser, three steps on one batch."""
    model = SmallCnn(10, rng)
    images, told = torch.rand(4, 3, 32, 32, generator=rng), torch.tensor([1, 2, 3, 4])
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    change: Callable[..., list[Tensor]] = attack(unrolled=3, unrolled_lr=0.2)._change  # type: ignore[attr-defined]
    found = change(model, list(before), images, told)
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(functional_call(model, {}, (images,)), told).backward()
        optimizer.step()
    for ours, (name, after) in zip(found, model.named_parameters(), strict=True):
        torch.testing.assert_close(ours, before[name] - after, atol=1e-6, rtol=1e-4)


def network(adversary: Adversary) -> nn.Module:
    return adversary.simulator(TrainingSimulator).network().eval()


def test_the_prior_s_weight_fits_held_back_images(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    (adversary_trials,) = adversaries_of(evaluator)
    adversary = adversary_trials.adversary
    (one,) = adversary_trials.trials[0].by_role["attack"]
    truth = [images[0] for _, images, _ in batch_labels.held_back_updates(adversary, one.observation.received_model, 1)]
    assert truth
    part: Any = Attack.named("gradient_inversion").configured({"bn": 0.0, "steps": 2, "simulations": 2})
    errors = {30.0: 0.01, 100.0: 0.1, math.inf: 0.2}

    def drawn(self: Any, model: Any, found: Any, prior: float, rng: torch.Generator) -> list[Tensor]:
        assert len(found.indices) == len(truth)
        return [(image[None] - errors[prior]).clamp(0, 1) for image in truth]

    monkeypatch.setattr(type(part), "_reconstructed", drawn)
    model = network(adversary)
    assert part._best_prior_weight(adversary, model, one.observation.received_model, 1) == 30.0
    assert (
        part._best_prior_weight(replace(adversary, held_back=()), model, one.observation.received_model, 1) == math.inf
    )


def test_at_infinity_the_prior_image_itself_is_drawn(evaluator: Evaluator) -> None:
    (adversary_trials,) = adversaries_of(evaluator)
    adversary, (one,) = adversary_trials.adversary, adversary_trials.trials[0].by_role["attack"]
    part: Any = Attack.named("gradient_inversion").configured({"bn": 0.0, "simulations": 2, "steps": 3, "lr": 0.01})
    model = network(adversary)
    (found,) = part._uploads(adversary, model, [one.observation])

    def at(prior: float) -> Tensor:
        (images,) = part._reconstructed(model, found, prior, generator(2))
        return torch.as_tensor(images)

    torch.testing.assert_close(at(math.inf), at(1e6), atol=0.06, rtol=0)  # starts vary by 0.01
    assert float((at(math.inf) - at(0.0)).abs().mean()) > float((at(math.inf) - at(1e6)).abs().mean())
