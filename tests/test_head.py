"""LSI's classifier head as what is evaluated: made as the method's own client makes it."""

from dataclasses import replace

import pytest
from conftest import Fitted, shortened
from factories import LSI_IN_HASTE, equal, evaluated, fitted_once, in_one_row_and_back, mean, only_the_server_sees

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ClassifierHead
from fdgpriv.data.dataset import Dataset
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.utils.seeds import generator


@pytest.fixture(scope="module")
def inverted(digits: Dataset) -> Fitted:
    """LSI in a hurry, twelve clients."""
    return fitted_once(shortened(digits, 64), clients=12, method="lsi", settings=LSI_IN_HASTE)


def test_the_heads_on_the_wire_are_examined(inverted: Fitted) -> None:
    target = inverted.evaluator().series(ClassifierHead.kind)
    assert set(target.wire) == set(inverted.population.clients)
    assert set(target.received_model) == set(inverted.population.clients) | set(inverted.population.shadows)
    assert {state.client for state in target.received_model.values()} == {SERVER}


def test_the_received_model_is_what_training_began_with(inverted: Fitted) -> None:
    """With ``recalibrate_bn`` two models go out in one round, to begin with and to renew, and then the final one to measure."""
    evaluator, transcript = inverted.evaluator(), inverted.transcript
    rounds = {"pretrain": 0, "recalibrate": 0, "validate": 1}
    began = {verb: transcript.model_sent(round, verb) for verb, round in rounds.items()}
    assert len({id(model) for model in began.values() if model is not None}) == 3
    for kind in (ClassifierHead.kind, "model_state"):
        assert {id(model) for model in evaluator.series(kind).received_model.values()} == {id(began["pretrain"])}


def test_a_head_is_made_as_a_client_makes_it(inverted: Fitted) -> None:
    """Bit for bit the one on the wire, where the draws are the same."""
    evaluator = inverted.evaluator()
    target = evaluator.series(ClassifierHead.kind)
    name, data = next(iter(inverted.population.clients.items()))
    sample = ClientSample.all_of(ClientImages(data.images, data.labels, target.received_model[name]))
    one, same, fewer = (
        target.simulator.simulate(replace(sample, index=sample.index[:n]), generator(1))
        for n in (len(data), len(data), 3)
    )
    assert equal(one.tensors(), same.tensors())
    shapes = [{key: t.shape for key, t in head.tensors().items()} for head in (one, target.wire[name])]
    assert shapes[0] == shapes[1]
    ours, less, wire = (
        target.simulator.vector(head, sample.received_model) for head in (one, fewer, target.wire[name])
    )
    assert float((ours - wire).norm()) < float((less - wire).norm())


def test_a_head_is_one_row_and_back(inverted: Fitted) -> None:
    in_one_row_and_back(inverted.evaluator().series(ClassifierHead.kind))


def test_only_the_server_sees_a_head(inverted: Fitted) -> None:
    only_the_server_sees(inverted.evaluator().series(ClassifierHead.kind), "has clients' model updates")


@pytest.mark.slow
def test_the_label_of_one_image_is_read_from_its_head(inverted: Fitted) -> None:
    spec = "label_histogram:expensive_simulations=40"
    scores = evaluated(inverted, spec, ClassifierHead.kind, (1,), per_client={1: 2}, seed=0)[1]
    assert mean(scores) < 1.5 < min(mean(scores, "public_shares"), mean(scores, "other_client"))
