"""LSI's classifier head as what is examined: made as the method's own client makes it."""

import numpy as np
import pytest
import torch
from conftest import Fitted, fit, shortened

from fdgpriv.artifact import SERVER
from fdgpriv.exam.marks import examine
from fdgpriv.federation import Dataset, generator
from fdgpriv.roles import Attack
from fdgpriv.states import ClassifierHead
from fdgpriv.subjects import Holding
from fdgpriv.threat import threat

SHORT = {"pretrain_epochs": "2", "inversion_steps": "2", "inversion_batches": "1", "translator_steps": "2"}


@pytest.fixture(scope="module")
def inverted(digits: Dataset) -> Fitted:
    """LSI in a hurry, twelve clients."""
    return fit(shortened(digits, 64), clients=12, method="lsi", settings=SHORT)


def test_the_heads_on_the_wire_are_examined(inverted: Fitted) -> None:
    subject = inverted.proctor().subject(ClassifierHead.kind)
    assert set(subject.wire) == set(inverted.population.clients)
    assert set(subject.sent) == set(inverted.population.clients) | set(inverted.population.shadows)
    assert {state.client for state in subject.sent.values()} == {SERVER}


def test_what_was_sent_is_what_training_began_with_and_not_what_is_sent_later_in_that_round(inverted: Fitted) -> None:
    """With ``recalibrate_bn`` and validation three models go out in one round: to begin with, to renew, to measure."""
    proctor, transcript = inverted.proctor(), inverted.transcript
    began = {verb: transcript.model_sent(0, verb) for verb in ("pretrain", "recalibrate", "validate")}
    assert len({id(model) for model in began.values() if model is not None}) == 3
    for kind in (ClassifierHead.kind, "model_state"):
        assert {id(model) for model in proctor.subject(kind).sent.values()} == {id(began["pretrain"])}


def test_a_head_is_made_as_a_client_makes_it(inverted: Fitted) -> None:
    """Bit for bit the one on the wire, where the draws are the same."""
    proctor = inverted.proctor()
    subject = proctor.subject(ClassifierHead.kind)
    name, data = next(iter(inverted.population.clients.items()))
    held, index = Holding(data.images, data.labels, subject.sent[name]), torch.arange(len(data))
    one, same, fewer = (subject.craft.make(held, index[:n], generator(1)) for n in (len(data), len(data), 3))
    assert all(torch.equal(tensor, same.tensors()[key]) for key, tensor in one.tensors().items())
    assert {key: tensor.shape for key, tensor in one.tensors().items()} == {
        key: tensor.shape for key, tensor in subject.wire[name].tensors().items()
    }
    ours, less, wire = (subject.craft.vector(head, held.sent) for head in (one, fewer, subject.wire[name]))
    assert float((ours - wire).norm()) < float((less - wire).norm())


def test_a_head_stands_in_one_row_and_comes_back_from_it(inverted: Fitted) -> None:
    subject = inverted.proctor().subject(ClassifierHead.kind)
    for name, head in subject.wire.items():
        row = subject.craft.flat(head, subject.sent[name])
        back = subject.craft.unflat(row, subject.sent[name])
        for key, tensor in head.tensors().items():
            torch.testing.assert_close(back.tensors()[key], tensor, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("role", ["client", "third_party"])
def test_only_the_server_sees_a_head(inverted: Fitted, role: str) -> None:
    subject = inverted.proctor().subject(ClassifierHead.kind)
    assert subject.refused(threat("server")) is None
    assert subject.refused(threat(role)) == f"the {role} is not granted has_updates"


def test_the_label_of_one_image_is_read_from_its_head(inverted: Fitted) -> None:
    proctor = inverted.proctor()
    proctor.per_client = {1: 2}
    attack = Attack.named("label_histogram").configured({"practice_costly": 40})
    subject = proctor.subject(ClassifierHead.kind)
    sittings = proctor.sittings(subject, threat("server"), (1,), reconstruction=False)
    marks = examine(attack, sittings, (), generator(0))[0][1]
    error = {name: float(np.mean(values)) for name, values in marks.headline.items()}
    assert error["attack"] < 1.5 < min(error["mean_image"], error["other_client"])
