"""FPL: prototypes, clusters and losses against plain loops, what crosses the wire, and what its presence tells."""

import math
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from factories import crossed, equal, federation, fitted_once, held, network, refused, run, seeded, small
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.prototypes import ClassPrototypes, ClusterPrototypes
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense, defended
from fdgpriv.evaluation.not_measured import not_measured
from fdgpriv.federation.transcript import Transcript

fpl = partial(small, "fpl")
part: Any = import_module("fdgpriv.methods._prototypes")
BUILD = network(1, 2)


def prototypes(rows: dict[int, list[float]], classes: int = 3, client: str = "client-0") -> ClassPrototypes:
    features = torch.zeros(classes, len(next(iter(rows.values()))))
    for label, row in rows.items():
        features[label] = torch.tensor(row)
    return ClassPrototypes(client=client, round=0, features=features)


def test_a_prototype_is_the_mean_of_its_class() -> None:
    features, labels = torch.randn(7, 4, generator=seeded(0)), torch.tensor([0, 2, 2, 0, 2, 0, 2])
    means = part.class_means(features, labels, 4)
    for label in range(4):
        rows = [row for row, is_of in zip(features.tolist(), labels.tolist(), strict=True) if is_of == label]
        plain = [sum(column) / len(rows) for column in zip(*rows, strict=True)] if rows else [0.0] * 4
        assert means[label].tolist() == pytest.approx(plain, abs=1e-6)


def test_clusters_are_finchs_coarsest_of_each_class() -> None:
    """Of class 0 FINCH has four clusters, then two; class 1 is one client's, whose prototype is broadcast; class 2 nobody's."""
    angles = [math.radians(degrees) for degrees in (0, 2, 10, 13, 80, 83, 100, 104)]
    shared = [
        prototypes({0: [math.cos(angle), math.sin(angle)], **({1: [3.0, 4.0]} if i == 2 else {})})
        for i, angle in enumerate(angles)
    ]
    clusters = part.clustered(shared, 5)
    assert (clusters.client, clusters.round, clusters.labels.tolist()) == (SERVER, 5, [0, 0, 1])
    halves = [sum(shared[i + j].features[0] for j in range(4)) / 4 for i in (0, 4)]
    torch.testing.assert_close(clusters.features, torch.stack([*halves, torch.tensor([3.0, 4.0])]))


def plain_loss(features: Tensor, labels: Tensor, clusters: ClusterPrototypes, temperature: float) -> float:
    losses = []
    for row, label in zip(features.tolist(), labels.tolist(), strict=True):
        terms, positive, own = 0.0, 0.0, []
        for center, of_class in zip(clusters.features.tolist(), clusters.labels.tolist(), strict=True):
            dot = sum(a * b for a, b in zip(row, center, strict=True))
            term = math.exp(dot / math.hypot(*row) / math.hypot(*center) / temperature)
            terms += term
            if of_class == label:
                positive += term
                own.append(center)
        if own:
            mean = [sum(column) / len(own) for column in zip(*own, strict=True)]
            distance = sum((a - b) ** 2 for a, b in zip(row, mean, strict=True)) / len(row)
            losses.append(-math.log(positive / terms) + distance)
    return sum(losses) / len(labels)


@pytest.mark.parametrize("temperature", [0.02, 1.0])
@pytest.mark.parametrize("classes", [[0, 0, 1, 2], [0, 1], [1]])
def test_the_loss_by_a_plain_loop(temperature: float, classes: list[int]) -> None:
    rng = seeded(len(classes))
    features, labels = torch.randn(6, 5, generator=rng), torch.tensor([0, 1, 2, 2, 0, 0])
    centers = torch.randn(len(classes), 5, generator=rng)
    clusters = ClusterPrototypes(client=SERVER, round=0, features=centers, labels=torch.tensor(classes))
    loss = part.prototype_loss(features, labels, clusters, temperature)
    assert float(loss) == pytest.approx(plain_loss(features, labels, clusters, temperature), rel=1e-4)


def test_no_known_class_has_no_loss() -> None:
    clusters = ClusterPrototypes(client=SERVER, round=0, features=torch.ones(1, 4), labels=torch.tensor([2]))
    assert float(part.prototype_loss(torch.ones(3, 4), torch.tensor([0, 1, 1]), clusters, 0.1)) == 0


def test_a_round_is_plain_steps_towards_clusters() -> None:
    """Two rounds of two steps on all images; the features of each round's second step are shared."""
    method, data = (
        fpl(batch_size=6, local_epochs=2, lr=0.01, momentum=0.0, weight_decay=0.0, temperature=0.2),
        held(n=6),
    )
    client: Any = method.client(federation(), data, seeded(0))
    model: Any = method.model(federation(), seeded(1)).train()
    sent, labels = ModelState.of(model, SERVER, 0), torch.tensor([0, 0, 1, 2])
    for round in range(2):
        centers = torch.rand(4, 4, generator=seeded(round))
        clusters = ClusterPrototypes(client=SERVER, round=round, features=centers, labels=labels)
        (trained, *_) = client.fit([sent, clusters])
        model.load_state_dict(sent.state)
        for _ in range(2):
            features = model.embedding(data.images)
            total = torch.nn.functional.cross_entropy(model.head(features), data.labels)
            for row, label in zip(features, data.labels.tolist(), strict=True):
                terms = ((centers @ row) / centers.norm(dim=1) / row.norm() / 0.2).exp()
                mean = centers[labels == label].mean(0)
                total = total + (((row - mean) ** 2).mean() - (terms[labels == label].sum() / terms.sum()).log()) / 6
            gradients = torch.autograd.grad(total, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.sub_(0.01 * gradient)
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(trained.state[name], tensor, rtol=1e-4, atol=1e-5)
        (shared,) = client.prototypes([])
        torch.testing.assert_close(
            shared.features, part.class_means(features.detach(), data.labels, 3), rtol=1e-4, atol=1e-5
        )


def test_absent_classes_are_not_sent() -> None:
    shared = prototypes({0: [1.0, 2.0], 2: [0.0, 1.0]})
    assert (shared.present.tolist(), shared.nbytes) == ([True, False, True], 2 * 2 * 4)
    with pytest.raises(ValueError, match=r"want features \(K, D\) float32"):
        ClassPrototypes(client="a", round=0, features=torch.zeros(3))


@pytest.fixture(scope="module")
def transcript() -> Transcript:
    return run(fpl(rounds=3), 5, 4, 3, build=BUILD, labels=(0, 0, 1, 1, 0)).transcript


def test_what_crosses_in_each_round(transcript: Transcript) -> None:
    sent = [(r.verb, r.kind, r.sender == SERVER, r.round) for r in transcript.records]
    assert sent.count(("prototypes", "class_prototypes", False, 0)) == 3
    assert sent.count(("prototypes", "class_prototypes", False, 1)) == 3
    assert sent.count(("fit", "cluster_prototypes", True, 0)) == 3  # of round 0, with the model of round 1
    assert sent.count(("fit", "cluster_prototypes", True, 1)) == 3
    assert not any(kind == "cluster_prototypes" and number == 2 for _, kind, _, number in sent)
    uploads = [r for r in transcript.records if r.kind == "class_prototypes"]
    assert {r.nbytes for r in uploads} == {2 * 4 * 4}  # two classes of four channels: nobody has the third
    assert {(r.clients, r.samples) for r in transcript.records if r.kind == "cluster_prototypes"} == {(3, 12)}


def test_the_server_clusters_what_it_received(transcript: Transcript) -> None:
    for clusters in crossed(transcript, ClusterPrototypes):
        shared = [artifact for artifact in crossed(transcript, ClassPrototypes) if artifact.round == clusters.round]
        assert equal(clusters.tensors(), part.clustered(shared, clusters.round).tensors())


def test_noise_hides_which_classes_are_there() -> None:
    sharing = fpl().disclosure()
    noise = Defense.parse("gaussian:epsilon=4,delta=1e-5").bound_to(sharing)
    noised = noise.shared(prototypes({1: [1.0, 2.0]}), seeded(0))
    assert isinstance(noised, ClassPrototypes)
    assert bool(noised.present.all())
    with refused("dpsgd.* fpl.*mean features of its mini-batches"):
        defended(fpl(), "dpsgd:epsilon=8")


def test_that_clusters_are_not_attacked_is_said(tiny: Dataset) -> None:
    evaluator = fitted_once(tiny, clients=6, method="fpl", settings={"rounds": "2"}).evaluator()
    sentences = not_measured(evaluator, None, None, attacked=True, once=True, few=True)
    (sentence,) = (s for s in sentences if s.startswith("cluster_prototypes: "))
    assert "not evaluated: each is the mean of several clients' prototypes" in sentence
    assert "cluster_prototypes" not in evaluator.artifact_series
