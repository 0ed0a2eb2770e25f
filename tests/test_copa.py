"""COPA: an extractor that is averaged, heads that are not, the ensemble's predictions and the loss by hand."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted
from factories import evaluated, federation, fitted_once, held, holding, network, refused, run, seeded, small
from factories_core import crossing
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import defended
from fdgpriv.federation.transcript import Transcript
from fdgpriv.simulation.relays import reaches_all
from fdgpriv.simulation.simulator import ClientSample
from fdgpriv.tasks.label_shares import LabelShares
from fdgpriv.threat import threat

copa = partial(small, "copa")
SIZES = (5, 4, 3)


@pytest.fixture(scope="module")
def transcript() -> Transcript:
    return run(copa(), *SIZES, build=network(1, 2)).transcript


def state(transcript: Transcript, sender: str, number: int) -> dict[str, Tensor]:
    (found,) = {
        id(model): model
        for record, model in transcript.of_kind(ModelState.kind)
        if (record.sender, record.round) == (sender, number) and model is not None
    }.values()
    return dict(found.tensors())


def test_extractors_are_averaged_and_sent_alone(transcript: Transcript) -> None:
    trained = [state(transcript, f"client-{i}", 0) for i in range(3)]
    sent = state(transcript, SERVER, 1)
    assert set(trained[0]) - set(sent) == {"head.weight", "head.bias"}
    assert not any(name.startswith("ensemble") for name in trained[0])
    for name, tensor in sent.items():
        if tensor.is_floating_point():
            plain = sum(n * t[name].double() for n, t in zip(SIZES, trained, strict=True)) / sum(SIZES)
            torch.testing.assert_close(tensor.double(), plain, atol=1e-6, rtol=1e-5)


def test_each_head_goes_to_every_other_client(transcript: Transcript) -> None:
    relayed = [
        (record.receiver, record.origin, artifact)
        for record, artifact in transcript.of_kind(ClassifierHead.kind)
        if artifact is not None
    ]
    names = [f"client-{i}" for i in range(3)]
    assert sorted((r, o) for r, o, _ in relayed) == [(r, o) for r in names for o in names if r != o]
    for _, origin, head in relayed:
        own = state(transcript, origin, 0)
        assert all(torch.equal(tensor, own[f"head.{name}"]) for name, tensor in head.tensors().items())


def test_predictions_are_mean_probabilities() -> None:
    ran = run(copa(), *SIZES, build=network(1, 2))
    model: Any = ran.model.eval()
    heads = [state(ran.transcript, f"client-{i}", 1) for i in range(3)]
    images = held(n=4).images
    features = model.embedding(images).detach()
    for row, logits in zip(features, model(images).detach(), strict=True):
        plain = [0.0] * 3
        for head in heads:
            scores = [math.exp(float(head["head.weight"][k] @ row + head["head.bias"][k])) for k in range(3)]
            plain = [p + s / sum(scores) / 3 for p, s in zip(plain, scores, strict=True)]
        assert logits.exp().tolist() == pytest.approx(plain, abs=1e-5)


def test_all_heads_begin_alike() -> None:
    clients = [copa().client(federation(), held(f"client-{i}"), seeded(i)) for i in range(3)]
    assert all(torch.equal(client.model.head.weight, clients[0].model.head.weight) for client in clients)
    method = copa()
    assert torch.equal(method.model(federation(), seeded(9)).head.weight, clients[0].model.head.weight)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_loss_by_hand(weight: float) -> None:
    client = copa(heads_weight=weight).client(federation(), held(), seeded(0))
    rng = seeded(4)
    client.others = [(torch.randn(3, 4, generator=rng), torch.randn(3, generator=rng)) for _ in range(2)]
    batch: Any = type("Batch", (), {"images": held().images, "labels": held().labels})
    features = client.model.embedding(batch.images).detach()
    own = (client.model.head.weight.detach(), client.model.head.bias.detach())
    losses = []
    for matrix, bias in (own, *client.others):
        rows = (features @ matrix.T + bias).tolist()
        of_head = [
            math.log(sum(math.exp(s) for s in row)) - row[k] for row, k in zip(rows, batch.labels.tolist(), strict=True)
        ]
        losses.append(sum(of_head) / len(of_head))
    expected = losses[0] + weight * (losses[1] + losses[2]) / 2
    assert float(client.loss(batch).detach()) == pytest.approx(expected, rel=1e-5)


def test_a_round_is_plain_steps_beside_other_heads() -> None:
    """Two steps on all images, from the received extractor and the client's own head."""
    method, data, rng = copa(batch_size=6, local_epochs=2, momentum=0.0, weight_decay=0.0), held(n=6), seeded(4)
    client: Any = method.client(federation(), data, seeded(0))
    model: Any = method.model(federation(), seeded(1)).train()
    sent = ModelState.of(model, SERVER, 1).without({"head.weight", "head.bias"})
    tensors = [(torch.randn(3, 4, generator=rng), torch.randn(3, generator=rng)) for _ in range(2)]
    heads = [
        ClassifierHead(client=f"peer-{i}", round=0, state={"weight": w, "bias": b}) for i, (w, b) in enumerate(tensors)
    ]
    (trained, *_) = client.fit([sent, *heads])
    for _ in range(2):
        features, loss = model.embedding(data.images), torch.nn.functional.cross_entropy
        others = [loss(features @ weight.T + bias, data.labels) for weight, bias in tensors]
        total = loss(model.head(features), data.labels) + (others[0] + others[1]) / 2
        parameters = list(model.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(total, parameters), strict=True):
                parameter.sub_(0.1 * gradient)
    for name, tensor in trained.state.items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_the_server_knows_where_heads_began(tiny: Dataset) -> None:
    fitted: Fitted = fitted_once(tiny, clients=6, method="copa", settings={"rounds": "2"})
    series = fitted.evaluator().series(ModelState.kind)
    for name in series.wire:
        began, number = series.received_model[name], series.number
        before = state(fitted.transcript, name, number - 1)
        assert torch.equal(began.state["head.weight"], before["head.weight"])
    assert series.kept
    assert not fitted_once(tiny, clients=6, method="fedavg", settings={"rounds": "2"}).shared.series("model_state").kept


def test_the_ensemble_that_clients_hold_is_attacked(tiny: Dataset) -> None:
    """The global model: the extractor sent, with every client's head of the round before, by plain softmax and mean."""
    fitted: Fitted = fitted_once(tiny, clients=6, method="copa", settings={"rounds": "3"}, keep="all")
    series = fitted.evaluator().series("global_model")
    assert (series.number, [earlier.number for earlier in series.history]) == (2, [1])
    for role in ("server", "client", "third_party"):
        assert series.refused(threat(role)) is None
    images = fitted.population.data("client-00").images[:5]
    for number, wire in ((2, series.wire), (1, series.history[0].wire)):
        attacked: Any = next(iter(wire.values()))
        assert all(model is attacked for model in wire.values())
        model: Any = fitted.method.model(fitted.federation, seeded(0))
        attacked.load_into(model)
        outputs = model.eval()(images).detach().exp()
        sent = state(fitted.transcript, SERVER, number)
        assert all(torch.equal(attacked.tensors()[name], tensor) for name, tensor in sent.items())
        plain: Any = fitted.method.model(fitted.federation, seeded(0)).eval()
        plain.load_state_dict(sent, strict=False)
        features = plain.embedding(images).detach()
        shares = torch.zeros(len(images), fitted.federation.classes)
        for client in fitted.population.clients:
            head = state(fitted.transcript, client, number - 1)
            scores = (features @ head["head.weight"].T + head["head.bias"]).exp()
            shares += scores / scores.sum(1, keepdim=True) / len(fitted.population.clients)
        torch.testing.assert_close(outputs, shares, atol=1e-5, rtol=1e-4)


def test_a_shadow_federation_gives_an_ensemble_of_its_heads(tiny: Dataset) -> None:
    """It has fewer clients; its model is evaluated by the same network."""
    fitted: Fitted = fitted_once(tiny, clients=6, method="copa", settings={"rounds": "3"}, keep="all")
    simulator: Any = fitted.evaluator().series("global_model").simulator
    images, labels = torch.rand(8, 3, 32, 32, generator=seeded(1)), torch.arange(8) % fitted.federation.classes
    (model,) = simulator.trained_from_start([(images[:4], labels[:4]), (images[4:], labels[4:])], seeded(2))
    assert model.state["ensemble.known"].tolist() == [1, 1]
    network = simulator.network()
    model.load_into(network)
    outputs = network.eval()(images).exp()
    torch.testing.assert_close(outputs.sum(1), torch.ones(8))


def test_membership_is_asked_of_the_ensemble(tiny: Dataset) -> None:
    fitted: Fitted = fitted_once(tiny, clients=6, method="copa", settings={"rounds": "3"}, keep="all")
    for role in ("client", "third_party"):
        scores = evaluated(fitted, "membership", "global_model", (None,), role=role)[None]
        values = np.asarray(scores.headline["attack"])
        assert values.size > 0
        assert bool(np.isfinite(values).all())


def test_relayed_heads_are_read_by_clients(tiny: Dataset) -> None:
    """Those of the last round but one, from where the client began; a simulated one is that of a simulated model."""
    fitted: Fitted = fitted_once(tiny, clients=6, method="copa", settings={"rounds": "3"}, keep="all")
    evaluator = fitted.evaluator()
    heads, models = evaluator.series(ClassifierHead.kind), evaluator.series(ModelState.kind)
    assert heads.refused(threat("server")) == "the server reads them within each client's model state"
    assert heads.refused(threat("client")) is heads.refused(threat("third_party")) is None
    assert (heads.number, [earlier.number for earlier in heads.history]) == (1, [0])
    before = models.history[-1]
    for name, head in heads.wire.items():
        own = before.wire[name].tensors()
        assert all(torch.equal(tensor, own[f"head.{part}"]) for part, tensor in head.tensors().items())
        assert heads.receivers[name] == set(fitted.population.clients) - {name}
        assert heads.received_model[name] is before.received_model[name]
    sample = ClientSample.all_of(holding(fitted, name, ClassifierHead.kind))
    simulated = heads.simulator.simulate(sample, seeded(3)).tensors()
    whole = before.simulator.simulate(sample, seeded(3)).tensors()
    assert all(torch.equal(tensor, whole[f"head.{part}"]) for part, tensor in simulated.items())


def test_a_client_sees_the_heads_of_all_rounds(tiny: Dataset) -> None:
    """All other clients' beside the observed one and beside a random one, which is not made from the client's own head."""
    evaluator = fitted_once(tiny, clients=6, method="copa", settings={"rounds": "3"}, keep="all").evaluator()
    series = evaluator.series(ClassifierHead.kind)
    for role, rounds in {"client": [0, 1], "third_party": [1]}.items():
        asked = evaluator.adversaries(series, threat(role), (None,), LabelShares())[0]
        assert not asked.calibration  # a simulated client has kept no head of its own
        attacked, drawn = (asked.trials[0].by_role[role][0].observation for role in ("attack", "random_style"))
        for observation in (attacked, drawn):
            view = asked.adversary.view(observation)
            assert [seen.number for seen in view] == rounds
            assert all(len(seen.others) >= 5 for seen in view)
    names = [trial.client for trial in asked.trials]
    weight = drawn.artifact.tensors()["weight"]
    began = [series.received_model[name].state["head.weight"] for name in (names[0], names[1])]
    assert (weight - began[1]).norm() < (weight - began[0]).norm()


def test_defenses_that_cannot_work_are_refused() -> None:
    """Without names, a client would be sent its own head as another's, and the ledger name wrong owners."""
    for defense, reason in (
        ("dpsgd", "heads that its clients keep"),
        ("shuffle", "whose server needs to know whose model_state it receives"),
        ("secure_aggregation:partial=true", "whose server needs each client's model state, sample count"),
    ):
        with refused(f"not applicable to copa.*{reason}"):
            defended(copa(), defense)


def test_relays_that_reach_all() -> None:
    def relays(*pairs: tuple[str, str]) -> Transcript:
        transcript = Transcript("all")
        for origin, receiver in pairs:
            head = ClassifierHead(client=origin, round=0, state={"weight": torch.zeros(1)})
            transcript.add(crossing(head, SERVER, receiver), head)
        return transcript

    names = ("a", "b", "c")
    every = [(origin, receiver) for origin in names for receiver in names if origin != receiver]
    assert reaches_all(relays(*every), ClassifierHead.kind)
    assert not reaches_all(relays(*every[1:]), ClassifierHead.kind)
    assert not reaches_all(relays(("a", "b"), ("b", "a"), ("c", "a")), ClassifierHead.kind)
    assert not reaches_all(relays(), ClassifierHead.kind)
