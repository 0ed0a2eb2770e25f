"""hFedF's embeddings as they are attacked: made as clients make them, told apart where they differ, and not where noise."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from conftest import Fitted, shortened
from factories import fitted_once

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.statistics import ClientEmbedding
from fdgpriv.attack import Attack
from fdgpriv.claims import Case, claims
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

NAME = ClientEmbedding.kind
SETTINGS = {
    "hidden": "8",
    "embedding": "autoencoder",
    "embedding_dim": "6",
    "autoencoder_epochs": "1",
    "autoencoder_images": "20",
}


@pytest.fixture(scope="module")
def trained(tiny: Dataset) -> Fitted:
    return fitted_once(tiny, clients=6, method="hfedf", settings=SETTINGS)


@pytest.fixture(scope="module")
def evaluator(trained: Fitted) -> Evaluator:
    return trained.evaluator()


def right(evaluator: Evaluator, wire: Mapping[str, Artifact] | None = None) -> float:
    """The share of clients and shadows whose domain is named; of these embeddings, where any are given."""
    target = evaluator.series(NAME)
    adversaries = evaluator.adversaries(
        target if wire is None else replace(target, wire=wire), threat("server"), (None,)
    )
    scores, _ = evaluate_trials(Attack.parse("domain_inference:expensive_simulations=9"), adversaries, (), generator(1))
    return fmean(scores[None].headline["attack"])


def test_it_is_what_each_client_answered(trained: Fitted, evaluator: Evaluator) -> None:
    target = evaluator.series(NAME)
    told = {r.origin: a for r, a in trained.transcript.of_kind(NAME)}
    assert dict(target.wire) == told
    assert target.refused(threat("server")) is None
    assert target.refused(threat("client")) is not None


def test_equal_images_and_draws_give_one_embedding(trained: Fitted, evaluator: Evaluator) -> None:
    """As the client itself would, given the validation images that it trains on here."""
    simulator = evaluator.series(NAME).simulator
    data = next(iter(trained.population.clients.values()))
    made = simulator.simulate(ClientSample(ClientImages(data.images, data.labels), torch.arange(7)), generator(3))
    seven = data.images[:7], data.labels[:7]
    held = ClientData(data.client, *seven, *seven, data.classes, data.flip, data.translate)
    (again,) = trained.method.client(trained.federation, held, generator(3)).embed([simulator.start])  # type: ignore[attr-defined]
    assert torch.equal(made.tensors()["vector"], again.vector)
    assert made.tensors()["vector"].shape == (6,)


@pytest.mark.slow
def test_domains_are_told_from_embeddings(digits: Dataset) -> None:
    settings = {**SETTINGS, "autoencoder_epochs": "15", "autoencoder_images": "30"}
    evaluator = fitted_once(shortened(digits, 240), clients=6, method="hfedf", settings=settings).default_evaluator()
    names = (*evaluator.series(NAME).clients, *evaluator.population.shadows)
    real = torch.stack([a.tensors()["vector"] for a in evaluator.series(NAME).wire.values()])
    drawn = real.mean(0) + real.std(0) * torch.randn(len(names), real.shape[1], generator=generator(2))
    noise = {name: ClientEmbedding(client=name, round=0, vector=row) for name, row in zip(names, drawn, strict=True)}
    assert right(evaluator) > 0.65
    assert right(evaluator, noise) < 0.6


def test_without_an_autoencoder_no_embedding_crosses(tiny: Dataset) -> None:
    assert (
        NAME not in fitted_once(tiny, clients=6, method="hfedf", settings={"hidden": "4"}).evaluator().artifact_series
    )
    (row,) = (row for row in claims("hfedf", Case([], [], {})) if row.id == "H-H7")
    assert (row.kind, row.verdict, "embedding=autoencoder" in row.reason) == ("design", None, True)
