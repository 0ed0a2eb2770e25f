"""FedSR: its divergence and loss written out, whose models reach whom, and what stays with a client."""

import math
from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import fit, shortened
from factories import crossed, federation, held, network, refused, run, seeded, small
from torch import nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import defended
from fdgpriv.threat import threat

module: Any = import_module("fdgpriv.methods.fedsr")
BUILD = network(1)


def references(rng: torch.Generator, scale: float) -> Any:
    reference = module.ClassReferences(3, 4)
    nn.init.normal_(reference.mean, generator=rng)
    nn.init.normal_(reference.spread, generator=rng)
    nn.init.constant_(reference.scale, scale)
    return reference


@pytest.mark.parametrize("scale", [1.0, 0.7])
def test_the_divergence_is_torch_s(scale: float, rng: torch.Generator) -> None:
    reference, labels = references(rng, scale), torch.tensor([2, 0, 2])
    mean, std = torch.randn(3, 4, generator=rng), torch.rand(3, 4, generator=rng) + 0.1
    computed = reference(mean, std, labels)
    for n, label in enumerate(labels):
        own = torch.distributions.Normal(scale * mean[n], scale * std[n])
        of_class = torch.distributions.Normal(reference.mean[label], (1 + reference.spread[label].exp()).log())
        torch.testing.assert_close(computed[n], torch.distributions.kl_divergence(own, of_class).sum())


def test_the_loss_is_the_plain_sum() -> None:
    method = small("fedsr", norm_weight=0.3, information_weight=0.2)
    model, data = method.model(federation(2, build=BUILD), seeded(0)).train(), held("client-0", 6)
    batch = import_module("fdgpriv.methods._federation").Batch(torch.arange(6), data.images, data.labels)
    with torch.no_grad():
        mean, std = model.distribution(data.images)
        model.rng = seeded(5)
        latents = mean + std * torch.randn(6, 5, generator=seeded(5))
        total = 0.0
        for n, label in enumerate(data.labels.tolist()):
            scores = [
                float(row @ latents[n] + shift) for row, shift in zip(model.head.weight, model.head.bias, strict=True)
            ]
            total += math.log(sum(map(math.exp, scores))) - scores[label]
            total += 0.3 * sum(value**2 for value in latents[n].tolist())
            total += 0.2 * float(model.reference(mean[n : n + 1], std[n : n + 1], data.labels[n : n + 1]))
        assert float(method.loss(model, batch, seeded(9))) == pytest.approx(total / 6, rel=1e-4)


def test_a_round_is_a_few_mini_batches() -> None:
    assert [len(index) for index in small("fedsr", local_steps=5).passes(9, seeded(0))] == [4] * 5
    assert [len(index) for index in small("fedsr", local_steps=None).passes(9, seeded(0))] == [4] * 2


def test_an_evaluation_averages_probabilities() -> None:
    model = small("fedsr", test_samples=7).model(federation(2, build=BUILD), seeded(0)).eval()
    images = held("client-0", 6).images
    with torch.no_grad():
        mean, std = model.distribution(images)
        shares = torch.stack([model.head(mean + std * draw).softmax(1) for draw in model.draws]).mean(0)
        torch.testing.assert_close(model(images).exp(), shares)
        assert torch.equal(model(images)[2:3], model(images[2:3]))
    assert model.draws.shape == (7, 5)
    assert not any("draws" in name for name in model.state_dict())


def test_every_client_receives_every_other_model() -> None:
    ran = run(small("fedsr"), 5, 7, 6, build=BUILD)
    uploads = {(a.client, a.round): a for a in crossed(ran.transcript, ModelState) if a.client != SERVER}
    assert len({id(artifact) for artifact in uploads.values()}) == 2 * 3
    relayed = [(record, artifact) for record, artifact in ran.transcript.of_kind(ModelState.kind) if record.relayed]
    pairs = [(record.round, record.origin, record.receiver) for record, _ in relayed]
    clients = ["client-0", "client-1", "client-2"]
    assert sorted(pairs) == sorted((r, a, b) for r in (1, 2) for a in clients for b in clients if a != b)
    for record, artifact in relayed:
        assert artifact is not None
        sent = uploads[record.origin, record.round - 1].state
        assert all(torch.equal(tensor, sent[name]) for name, tensor in artifact.tensors().items())


def test_class_references_stay_with_their_client() -> None:
    ran = run(small("fedsr"), 5, 7, 6, build=BUILD)
    names = {name for record in ran.transcript.records for name in record.shapes}
    assert names == set(ran.state) - {f"reference.{part}" for part in ("mean", "spread", "scale")}
    method, world = small("fedsr"), federation(2, build=BUILD)
    client = method.client(world, held("client-0", 6), seeded(1))
    (sent,) = next(method.server(world, seeded(0))).messages["client-0"]
    learned = []
    for _ in range(2):
        client.fit([sent])
        learned.append(client.model.reference.mean.detach().clone())
    assert float(learned[0].abs().sum()) > 0
    assert not torch.equal(*learned)
    sent.load_into(client.model)
    assert torch.equal(client.model.reference.mean, learned[1])


def test_clients_see_each_other_s_models(digits: Dataset) -> None:
    target = fit(shortened(digits, 48), clients=3, method="fedsr").evaluator().series("model_state")
    for role in ("server", "client", "third_party"):
        assert target.refused(threat(role)) is None
    assert target.receivers.keys() == target.receiver.keys() == set(target.clients)
    for name, receivers in target.receivers.items():
        assert receivers == set(target.clients) - {name}
        assert target.receiver[name] in receivers


def test_defenses_that_cannot_work_are_refused() -> None:
    for defense, reason in (
        ("secure_aggregation", "not applicable to fedsr"),
        ("shuffle", "whose server needs to know whose model_state it receives"),
        ("dpsgd", "class references"),
    ):
        with refused(reason):
            defended(small("fedsr"), defense)
