"""Shares of labels told outright: read as they are, and not where random ones stand in for them."""

from dataclasses import replace
from statistics import fmean

import pytest
import torch
from conftest import Fitted, fit, shortened

from fdgpriv.artifact import SERVER
from fdgpriv.exam.marks import examine
from fdgpriv.federation import Dataset, generator
from fdgpriv.roles import Attack
from fdgpriv.states import LabelMarginal
from fdgpriv.subjects import Holding
from fdgpriv.threat import threat

SHORT = {"pretrain_epochs": "1", "inversion_steps": "2", "inversion_batches": "1", "translator_steps": "2"}
NAME = LabelMarginal.kind


@pytest.fixture(scope="module")
def told(digits: Dataset) -> Fitted:
    """LSI in a hurry, whose twelve clients tell what they have of each class."""
    return fit(shortened(digits, 64), clients=12, method="lsi", settings={**SHORT, "inversion_labels": "marginal"})


def test_a_client_of_the_same_images_tells_the_same(told: Fitted) -> None:
    subject = told.proctor().subject(NAME)
    for name, data in told.population.clients.items():
        made = subject.craft.make(Holding(data.images, data.labels), torch.arange(len(data)), generator(1))
        assert torch.equal(made.tensors()["share"], subject.wire[name].tensors()["share"])
        back = subject.craft.unflat(subject.craft.flat(made, None), None)
        torch.testing.assert_close(back.tensors()["share"], made.tensors()["share"])


def test_only_the_server_is_told(told: Fitted) -> None:
    subject = told.proctor().subject(NAME)
    assert [subject.refused(threat(role)) for role in ("server", "insider")] == [None, None]
    assert all(subject.refused(threat(role)) for role in ("client", "third_party"))


def test_the_histogram_is_read_from_it_and_from_a_wrong_one_it_is_not(told: Fitted) -> None:
    proctor = told.proctor()
    subject, who = proctor.subject(NAME), threat("server")
    one_class = LabelMarginal(client=SERVER, round=0, share=torch.eye(10)[3])
    wrong = replace(subject, wire=dict.fromkeys(subject.clients, one_class))
    right, astray = (
        examine(
            Attack.named("label_histogram")(),
            proctor.sittings(some, who, (1, None), reconstruction=False),
            (),
            generator(2),
        )[0]
        for some in (subject, wrong)
    )
    for size in (1, None):
        found = {name: fmean(values) for name, values in right[size].headline.items()}
        others = {name: value for name, value in found.items() if name != "attack"}
        assert found["attack"] < 0.2 < min(others.values()), found
    marks = astray[None]
    assert all(
        value > 1
        for value, client in zip(marks.headline["attack"], marks.clients, strict=True)
        if client in subject.clients
    )
