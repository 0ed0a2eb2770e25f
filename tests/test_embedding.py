"""hFedF's embeddings as they are attacked: made as clients make them, told apart where they differ, and not where noise."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from conftest import Fitted, fit, shortened

from fdgpriv.artifact import Artifact
from fdgpriv.claims import Case, claims
from fdgpriv.exam.marks import examine
from fdgpriv.exam.proctor import Proctor
from fdgpriv.federation import Dataset, generator
from fdgpriv.kinds import ClientEmbedding
from fdgpriv.roles import Attack
from fdgpriv.subjects import Holding
from fdgpriv.threat import threat

NAME = ClientEmbedding.kind
SETTINGS = {"embedding": "autoencoder", "embedding_dim": "6", "autoencoder_epochs": "4", "autoencoder_images": "20"}


@pytest.fixture(scope="module")
def trained(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=6, method="hfedf", settings=SETTINGS)


@pytest.fixture(scope="module")
def proctor(trained: Fitted) -> Proctor:
    return trained.proctor()


def right(proctor: Proctor, wire: Mapping[str, Artifact] | None = None) -> float:
    """The share of clients and shadows whose domain is named; of these embeddings, where any are given."""
    subject = proctor.subject(NAME)
    sittings = proctor.sittings(
        subject if wire is None else replace(subject, wire=wire), threat("server"), (None,), reconstruction=False
    )
    marks, _ = examine(Attack.parse("domain_inference:practice_costly=9"), sittings, (), generator(1))
    return fmean(marks[None].headline["attack"])


def test_it_is_what_each_client_answered(trained: Fitted, proctor: Proctor) -> None:
    subject = proctor.subject(NAME)
    told = {r.origin: a for r, a in trained.transcript.of_kind(NAME)}
    assert dict(subject.wire) == told
    assert subject.refused(threat("server")) is None
    assert subject.refused(threat("client")) is not None


def test_a_client_with_the_same_images_and_draws_makes_the_same_one(trained: Fitted, proctor: Proctor) -> None:
    """As the client itself would, given the validation images that it trains on here."""
    craft = proctor.subject(NAME).craft
    data = next(iter(trained.population.clients.values()))
    made = craft.make(Holding(data.images, data.labels), torch.arange(7), generator(3))
    held = replace(
        data,
        images=data.images[:7],
        labels=data.labels[:7],
        held_out_images=data.images[:7],
        held_out_labels=data.labels[:7],
    )
    (again,) = trained.method.client(trained.federation, held, generator(3)).embed([craft.start])  # type: ignore[attr-defined]
    assert torch.equal(made.tensors()["vector"], again.vector)
    assert made.tensors()["vector"].shape == (6,)


@pytest.mark.slow
def test_domains_are_told_from_real_embeddings_and_not_from_noise(digits: Dataset) -> None:
    settings = {**SETTINGS, "autoencoder_epochs": "15", "autoencoder_images": "30"}
    proctor = fit(shortened(digits, 240), clients=6, method="hfedf", settings=settings).proctor()
    names = (*proctor.subject(NAME).clients, *proctor.population.shadows)
    real = torch.stack([a.tensors()["vector"] for a in proctor.subject(NAME).wire.values()])
    drawn = real.mean(0) + real.std(0) * torch.randn(len(names), real.shape[1], generator=generator(2))
    noise = {name: ClientEmbedding(client=name, round=0, vector=row) for name, row in zip(names, drawn, strict=True)}
    assert right(proctor) > 0.65
    assert right(proctor, noise) < 0.6


def test_without_an_autoencoder_no_embedding_crosses_and_the_claim_says_so(tiny: Dataset) -> None:
    assert NAME not in fit(tiny, clients=6, method="hfedf").proctor().subjects
    (row,) = (row for row in claims("hfedf", Case([], [], {})) if row.id == "H-H7")
    assert (row.verdict, "embedding=autoencoder" in row.reason) == ("undecided", True)
