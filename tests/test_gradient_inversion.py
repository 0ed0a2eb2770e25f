"""Gradient inversion: labels exactly, one image from one step, nothing from noise, and a budget too small says so."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TARGET, Evaluator, shortened
from torch import Tensor, nn
from torch.func import functional_call

from fdgpriv.artifact import ModelState
from fdgpriv.data import load
from fdgpriv.draws import drawing_from
from fdgpriv.engine.local import LocalEngine
from fdgpriv.exam import Sitting
from fdgpriv.exam.marks import Marks, examine
from fdgpriv.exam.paper import Paper
from fdgpriv.federation import Federation, generator
from fdgpriv.judge import judge
from fdgpriv.partition import populate
from fdgpriv.plan import Plan
from fdgpriv.roles import Attack, Defense
from fdgpriv.threat import threat
from fdgpriv.transcript import Transcript
from fdgpriv.wire import Wire

averaging: Any = import_module("fdgpriv.methods._averaging")
labels: Any = import_module("fdgpriv.attacks._labels")


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
def evaluator() -> Evaluator:
    """Twelve clients of eight images, one image of each asked about."""
    dataset = replace(shortened(load("digits"), 60), translate=0.0)
    population = populate(dataset, TARGET, "single", 12, 0)
    plan = Plan(methods=("fedavg",), preset="quick", clients=12, device="cpu").checked()
    federation = plan.federation(dataset, list(population.clients), 0)
    none, transcript = Defense.named("none")(), Transcript("ends")
    wire = Wire({name: len(held) for name, held in population.clients.items()}, none, transcript)
    LocalEngine(1).run(OneStep(), federation, population.clients, wire)
    return Evaluator(population, OneStep(), federation, none, transcript, 0, {1: 1})


def attack(**settings: Any) -> Attack:
    return Attack.named("gradient_inversion").configured(
        {"bn": 0.0, "prior": 0.0, "tv": 0.0, "lr": 0.1, "signed": True, **settings}
    )


def sat(evaluator: Evaluator) -> list[Sitting]:
    subject = evaluator.subject(ModelState.kind)
    return evaluator.sittings(subject, threat("server"), (1,), reconstruction=True)


def judged(evaluator: Evaluator, part: Attack, sittings: list[Sitting]) -> tuple[Any, Marks]:
    marks = examine(part, sittings, (1,), generator(3))[0][1]
    paper = Paper(part, threat("server"), ModelState.kind, "image", True, marks={1: marks})
    return judge({"one": paper}, 0)["one"], marks


def test_one_image_of_one_step_is_recovered_with_its_label(evaluator: Evaluator) -> None:
    """AUDIT 3: the positive control."""
    found, marks = judged(evaluator, attack(steps=60), sat(evaluator))
    assert np.mean(marks.headline["attack"]) > 20
    assert set(marks.details["labels_right"]["attack"]) == {1.0}
    assert found.verdict == "leak"


def test_with_one_step_it_says_inconclusive(evaluator: Evaluator) -> None:
    found, _ = judged(evaluator, attack(steps=1), sat(evaluator))
    assert found.verdict == "inconclusive"
    assert found.positive_control is not None
    assert not found.positive_control.succeeded


def test_nothing_is_recovered_from_noise(evaluator: Evaluator) -> None:
    """An artifact of noise has the norm of a true one, and no image behind it."""
    (sitting,) = sat(evaluator)
    item = sitting.items[0]
    (one,) = item.asked["attack"]
    assert one.question.sent is not None
    sent = one.question.sent.state
    rng = generator(1)
    noise = {name: tensor + 1e-3 * torch.randn(tensor.shape, generator=rng) for name, tensor in sent.items()}
    question = replace(one.question, artifact=ModelState(client="x", round=0, state=noise))
    part = attack(steps=20)
    (guess,), blind = part.read(sitting.view, [question], generator(2))
    scored = part.score([guess, *blind["mean_image"]], [one.truth] * 2)
    assert float(scored[0]) < float(scored[1])


def change_of(model: nn.Module, images: Tensor, told: Tensor) -> dict[str, Tensor]:
    loss = nn.functional.cross_entropy(model(images), told)
    return dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters())), strict=True))


@pytest.mark.parametrize("label", range(10))
def test_the_label_of_a_single_image_is_exact(rng: torch.Generator, label: int) -> None:
    change = change_of(SmallCnn(10, rng), torch.rand(1, 3, 32, 32, generator=rng), torch.tensor([label]))
    assert int(labels.bias_change(change, list(change)[-2:]).argmin()) == label


def test_labels_are_dealt_out_by_largest_remainders() -> None:
    assert labels.labels_of(torch.tensor([0.5, 0.3, 0.2]), 4).tolist() == [0, 0, 1, 2]
    assert labels.labels_of(torch.tensor([0.0, 1.0, 0.0]), 3).tolist() == [1, 1, 1]


def test_unrolled_steps_are_those_of_plain_sgd(rng: torch.Generator) -> None:
    """Against torch's own optimiser, three steps on one batch."""
    model = SmallCnn(10, rng)
    images, told = torch.rand(4, 3, 32, 32, generator=rng), torch.tensor([1, 2, 3, 4])
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    made: Callable[..., list[Tensor]] = attack(unrolled=3, unrolled_lr=0.2)._made  # type: ignore[attr-defined]
    found = made(model, images, told)
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(functional_call(model, {}, (images,)), told).backward()
        optimizer.step()
    for ours, (name, after) in zip(found, model.named_parameters(), strict=True):
        torch.testing.assert_close(ours, before[name] - after, atol=1e-6, rtol=1e-4)
