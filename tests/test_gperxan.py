"""gPerXAN: its layer and its loss written out, what goes up and down, and what clients and adversaries start from."""

import math
from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import fit, shortened
from factories import (
    crossed,
    evaluated,
    federation,
    fitted_once,
    held,
    in_one_row_and_back,
    mean,
    network,
    refused,
    run,
    run_on,
    seeded,
    small,
)
from torch import nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.local_tensors import batchnorm_tensors
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import ModelEvaluation
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import defended

module: Any = import_module("fdgpriv.methods.gperxan")
BUILD = network(1, 1)


def test_the_layer_is_the_plain_sum(rng: torch.Generator) -> None:
    layer = module.AssembledNorm(nn.BatchNorm2d(3)).train()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=rng)
    features = torch.randn(5, 3, 4, 4, generator=rng)
    normalised = layer(features)
    scores = layer.batchnorm_score.value.detach(), layer.instancenorm_score.detach()
    first, second = (math.exp(float(score)) for score in scores)
    for n in range(5):
        for c in range(3):
            total = 0.0
            for share, norm, pixels in (
                (first, layer.batchnorm, features[:, c]),
                (second, layer.instancenorm, features[n, c]),
            ):
                unit = (features[n, c] - pixels.mean()) / (pixels.var(correction=0) + 1e-5).sqrt()
                total = total + share / (first + second) * (unit * norm.weight[c] + norm.bias[c])
            torch.testing.assert_close(normalised[n, c], total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_loss_has_the_received_head_fixed(weight: float) -> None:
    method, world = small("gperxan", regulariser=weight), federation(2, build=BUILD)
    client = method.client(world, held("client-0", 6), seeded(1))
    sent = next(method.server(world, seeded(0))).messages["client-0"]
    client.fit(sent)
    model, data = client.model.train(), client.data
    batch = import_module("fdgpriv.methods._federation").Batch(torch.arange(6), data.images, data.labels)
    features = model.backbone(data.images).mean((2, 3))
    state = sent[0].state
    plain, right = 0.0, (torch.arange(6), data.labels)
    trained, received = (model.head.weight, model.head.bias), (state["head.weight"], state["head.bias"])
    for share, (head, shift) in ((1.0, trained), (weight, received)):
        plain = plain - share * (features @ head.T + shift).log_softmax(1)[right].mean()
    torch.testing.assert_close(client.loss(batch), plain, rtol=1e-4, atol=1e-5)
    assert not torch.equal(model.head.weight, state["head.weight"])


def test_batchnorm_goes_up_and_not_down() -> None:
    ran = run(small("gperxan"), 5, 7, build=BUILD)
    layers = [f"backbone.body.layer{i}.1" for i in (1, 2)]
    leaves = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    personal = {f"{layer}.batchnorm.{leaf}" for layer in layers for leaf in leaves}
    personal |= {f"{layer}.batchnorm_score.value" for layer in layers}
    assert personal < ran.state.keys()
    down, up = ([r for r in ran.transcript.records if (r.sender == SERVER) == is_down] for is_down in (True, False))
    assert all(r.shapes.keys() == ran.state.keys() - personal for r in down)
    assert all(r.shapes.keys() == ran.state.keys() for r in up if r.kind == ModelState.kind)
    last = [artifact.state for artifact in crossed(ran.transcript, ModelState) if artifact.client != SERVER][-2:]
    for name in personal - {name for name in personal if name.endswith("tracked")}:
        mean = (5 * last[0][name] + 7 * last[1][name]) / 12
        torch.testing.assert_close(ran.state[name], mean, rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(last[0][name], last[1][name]) for name in personal)
    for name in (f"{layer}.instancenorm_score" for layer in layers):
        assert all(name in r.shapes for r in down)


def test_a_client_keeps_its_own_batchnorm() -> None:
    method, world = small("gperxan"), federation(2, build=BUILD)
    client = method.client(world, held("client-0", 6), seeded(1))
    (sent,) = next(method.server(world, seeded(0))).messages["client-0"]
    trained = client.fit([sent])[0].state
    sent.load_into(client.model)
    state = client.model.state_dict()
    for name in state:
        assert torch.equal(state[name], sent.state.get(name, trained[name]))


def test_a_client_reports_the_model_that_it_trained() -> None:
    """Loss and accuracy on its held-out images, in every round and whatever selects the model."""
    for selection in ("last", "validation"):
        method = small("gperxan", selection=selection)
        ran = run(method, 5, 7, build=BUILD)
        shared = crossed(ran.transcript, ModelEvaluation)
        asked = [(client, round, metric) for round in (0, 1) for client in ("client-0", "client-1")
                 for metric in ("loss", "accuracy")]  # fmt: skip
        assert [(e.client, e.round, e.metric) for e in shared] == asked
        assert all(e.trained for e in shared)
        states = {(a.client, a.round): a for a in crossed(ran.transcript, ModelState) if a.client != SERVER}
        for evaluation in shared:
            data = held(evaluation.client, {"client-0": 5, "client-1": 7}[evaluation.client])
            model = method.model(federation(2, build=BUILD), seeded(0))
            states[evaluation.client, evaluation.round].load_into(model)
            with torch.no_grad():
                rows = model.eval()(data.held_out_images).log_softmax(1).tolist()
            labels = data.held_out_labels.tolist()
            loss = -sum(row[label] for row, label in zip(rows, labels, strict=True)) / len(labels)
            hits = [row.index(max(row)) == label for row, label in zip(rows, labels, strict=True)]
            value = loss if evaluation.metric == "loss" else sum(hits) / len(labels)
            assert float(evaluation.value) == pytest.approx(value, rel=1e-4)
    with refused("gperxan: want held-out images of every client, got none of client-0"):
        run_on(small("gperxan"), federation(1, build=BUILD), {"client-0": held("client-0", 6, out=0)})


def test_rounds_are_evaluated_with_the_mean() -> None:
    method = small("gperxan")
    server = method.server(federation(1, build=BUILD), seeded(0))
    ask = next(server)
    client = method.client(federation(1, build=BUILD), held("client-0", 6), seeded(1))
    answer = client.fit(ask.messages["client-0"])
    evaluated = server.send({"client-0": answer}).evaluated
    assert evaluated is not None
    assert all(torch.equal(tensor, answer[0].state[name]) for name, tensor in evaluated.state.items())


def test_adversaries_know_where_a_client_started(digits: Dataset) -> None:
    trained = fit(shortened(digits, 48), clients=3, method="gperxan", settings={"rounds": "2"}, keep="all")
    target = trained.evaluator().series("model_state")
    in_one_row_and_back(target)
    (before,) = target.history
    assert len({id(model) for model in before.received_model.values()}) == 1
    model = trained.method.model(trained.federation, seeded(0))
    personal = batchnorm_tensors(model) | {name for name in model.state_dict() if "batchnorm_score" in name}
    assert len(personal) > len(batchnorm_tensors(model))
    for client, received in ((name, target.received_model[name]) for name in target.wire):
        assert list(received.state) == list(target.wire[client].tensors())
        for name in personal:
            assert torch.equal(received.state[name], before.wire[client].tensors()[name])


def test_dpsgd_is_refused_in_one_line() -> None:
    with refused("dpsgd: .*scores of its normalisation layers"):
        defended(small("gperxan"), "dpsgd")


@pytest.mark.slow
def test_clients_are_linked_by_the_layers_that_they_keep(tiny: Dataset) -> None:
    """The control, an artifact of public images, starts from another client's layers: its own would tell who it is."""
    trained = fitted_once(tiny, clients=6, method="gperxan", settings={"rounds": "3"}, keep="all")
    scores = evaluated(trained, "linkage", "model_state", (None,))[None]
    assert mean(scores) > 0.9
    assert mean(scores, "random_style") < 0.5
