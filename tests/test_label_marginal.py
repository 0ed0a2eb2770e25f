"""Shares of labels told outright: read as they are, and not where random ones stand in for them."""

from dataclasses import replace
from statistics import fmean

import pytest
import torch
from conftest import Fitted, shortened
from factories import LSI_IN_HASTE, fitted_once, in_one_row_and_back

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.statistics import LabelMarginal
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

NAME = LabelMarginal.kind


@pytest.fixture(scope="module")
def told(digits: Dataset) -> Fitted:
    """LSI in a hurry, whose six clients tell what they have of each class."""
    return fitted_once(
        shortened(digits, 64), clients=6, method="lsi", settings={**LSI_IN_HASTE, "inversion_labels": "marginal"}
    )


def test_a_client_of_the_same_images_tells_the_same(told: Fitted) -> None:
    target = told.evaluator().series(NAME)
    for name, data in told.population.clients.items():
        made = target.simulator.simulate(ClientSample.all_of(ClientImages(data.images, data.labels)), generator(1))
        assert torch.equal(made.tensors()["share"], target.wire[name].tensors()["share"])
    in_one_row_and_back(target)


def test_only_the_server_is_told(told: Fitted) -> None:
    target = told.evaluator().series(NAME)
    assert [target.refused(threat(role)) for role in ("server", "insider")] == [None, None]
    assert all(target.refused(threat(role)) for role in ("client", "third_party"))


def test_the_histogram_is_read_from_it(told: Fitted) -> None:
    evaluator = told.evaluator()
    target, who = evaluator.series(NAME), threat("server")
    one_class = LabelMarginal(client=SERVER, round=0, share=torch.eye(10)[3])
    wrong = replace(target, wire=dict.fromkeys(target.clients, one_class))
    attack = Attack.parse("label_histogram:simulations=60")
    asked = [evaluator.adversaries(some, who, (1, None)) for some in (target, wrong)]
    right, astray = (evaluate_trials(attack, adversaries, (), generator(2))[0] for adversaries in asked)
    for size in (1, None):
        found = {name: fmean(values) for name, values in right[size].headline.items()}
        others = {name: value for name, value in found.items() if name != "attack"}
        assert found["attack"] < 0.2 < min(others.values()), found
    scores = astray[None]
    pairs = zip(scores.headline["attack"], scores.clients, strict=True)
    assert all(value > 1 for value, client in pairs if client in target.clients)
