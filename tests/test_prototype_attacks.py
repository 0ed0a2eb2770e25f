"""Attacks on class prototypes: peers' deviations by plain loops, labels and members found, and neither in noise."""

from dataclasses import replace
from importlib import import_module
from statistics import fmean
from typing import Any

import pytest
import torch
from conftest import Fitted, shortened
from factories import fitted_once, seeded
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

KIND = ClassPrototypes.kind
part: Any = import_module("fdgpriv.attacks._prototypes")


def prototypes(features: Tensor) -> ClassPrototypes:
    return ClassPrototypes(client="peer", round=0, features=features)


def seen(rows: Tensor) -> Any:
    """A round in which the first of these clients is observed, and p1, p2, ... are the others."""
    others = {f"p{i}": prototypes(row) for i, row in enumerate(rows[1:], start=1)}
    return type("Round", (), {"artifact": prototypes(rows[0]), "others": others})


def test_deviations_by_plain_loops() -> None:
    rows = torch.randn(6, 3, 4, generator=seeded(0))
    rows[1, 2] = rows[2:, 1] = 0  # p1 lacks class 2; class 1 is there in one peer
    names = [f"p{i}" for i in range(1, 6)]
    deviations = part.Deviations.of(seen(rows), names)
    unwhitened = deviations.rows @ torch.linalg.inv(deviations.root)
    for i in range(6):
        for label in range(3):
            peers = [rows[j, label] for j in range(1, 6) if j != i and rows[j, label].any()]
            count = sum(bool(rows[j, label].any()) for j in range(1, 6))
            known = bool(rows[i, label].any()) and (count > 1 if i == 0 else bool(peers))
            assert bool(deviations.known[i, label]) is known
            plain = rows[i, label] - sum(peers) / len(peers) if known else torch.zeros(4)
            torch.testing.assert_close(unwhitened[i, label], plain, atol=1e-4, rtol=1e-4)
    pooled = deviations.rows[1:][deviations.known[1:]]
    assert float(pooled.square().mean()) == pytest.approx(1, abs=0.25)
    assert part.Deviations.of(seen(rows[:3]), names) is None


def test_peers_have_the_nearest_prototypes() -> None:
    near, far = torch.full((5, 2, 3), 1.0), torch.full((4, 2, 3), 5.0)
    rows = torch.cat([near, far]) + 0.1 * torch.rand(9, 2, 3, generator=seeded(0))
    assert set(part.peers_of(seen(rows), 2)) == {"p1", "p2", "p3", "p4"}


@pytest.fixture(scope="module")
def fitted(digits: Dataset) -> Fitted:
    settings = {"rounds": "8", "local_epochs": "2", "batch_size": "8", "lr": "0.1", "schedule": "cosine"}
    return fitted_once(shortened(digits, 300), clients=12, method="fpl", settings=settings)


@pytest.fixture(scope="module")
def evaluator(fitted: Fitted) -> Evaluator:
    return fitted.evaluator()


def mean_score(evaluator: Evaluator, spec: str, size: int | None, wire: dict[str, Artifact] | None = None) -> float:
    series = evaluator.series(KIND)
    series = series if wire is None else replace(series, wire=wire, history=())
    attack = Attack.parse(spec)
    adversaries = evaluator.adversaries(series, threat("server"), (size,), attack.task)
    scores, _ = evaluate_trials(attack, adversaries, (), generator(1))
    return fmean(scores[size].headline["attack"])


def noise(evaluator: Evaluator) -> dict[str, Artifact]:
    rng = seeded(5)
    return {
        name: prototypes(torch.rand(artifact.tensors()["features"].shape, generator=rng))
        for name, artifact in evaluator.series(KIND).wire.items()
    }


@pytest.mark.slow
def test_one_image_is_told_by_its_prototype(evaluator: Evaluator) -> None:
    assert mean_score(evaluator, "prototype_labels", 1) == 0
    assert mean_score(evaluator, "prototype_membership", 1) > 0.6


@pytest.mark.slow
def test_a_clients_labels_and_members_are_told(evaluator: Evaluator) -> None:
    labels, members = (mean_score(evaluator, f"prototype_{name}", None) for name in ("labels", "membership"))
    assert members > 0.54
    assert labels < mean_score(evaluator, "prototype_labels", None, noise(evaluator)) - 0.03


@pytest.mark.slow
def test_one_image_is_drawn_from_its_prototype(evaluator: Evaluator) -> None:
    attack = Attack.parse("prototype_regression")
    adversaries = evaluator.adversaries(evaluator.series(KIND), threat("server"), (1,), attack.task)
    scores, _ = evaluate_trials(attack, adversaries, (), generator(1))
    drawn, of_domain = (fmean(scores[1].headline[role]) for role in ("attack", "domain_mean"))
    assert drawn > of_domain + 0.2


@pytest.mark.slow
def test_noise_tells_nobody(evaluator: Evaluator) -> None:
    assert abs(mean_score(evaluator, "prototype_membership", None, noise(evaluator)) - 0.5) < 0.1


@pytest.mark.slow
def test_a_clients_simulated_prototypes_are_its_own(fitted: Fitted, evaluator: Evaluator) -> None:
    """The simulator trains as the client did: the classes are the same, and the features near."""
    series = evaluator.series(KIND)
    assert [earlier.number for earlier in series.history] == sorted({earlier.number for earlier in series.history})
    name = next(iter(series.wire))
    data = fitted.population.clients[name]
    party = ClientImages(data.images, data.labels, series.received_model[name])
    made = series.simulator.simulate(ClientSample.all_of(party), generator(3))
    assert isinstance(made, ClassPrototypes)
    shared = series.wire[name]
    assert isinstance(shared, ClassPrototypes)
    both = made.present & shared.present
    assert int(both.sum()) >= int(shared.present.sum()) - 2
    cosine = torch.nn.functional.cosine_similarity(made.features[both], shared.features[both], dim=1)
    assert float(cosine.min()) > 0.7
