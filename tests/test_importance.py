"""LSI's importances as what is examined: how they are made, what is read from them, and what is not."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TARGET, Fitted, shortened
from scipy.stats import norm
from test_lsi import federation, held, lsi, network, run
from torch import Tensor, nn

from fdgpriv.engine.local import LocalEngine, stream
from fdgpriv.exam.marks import Marks, examine
from fdgpriv.federation import Dataset, Federation, generator
from fdgpriv.partition import populate
from fdgpriv.roles import Attack, Defense
from fdgpriv.states import ImportanceWeights
from fdgpriv.subjects import Holding, ImportanceCraft, Subject
from fdgpriv.threat import threat
from fdgpriv.transcript import Transcript
from fdgpriv.wire import Wire

attack_module: Any = import_module("fdgpriv.attacks.importance_membership")
marking: Any = import_module("fdgpriv.attacks._membership")
D = 16


def fitted(dataset: Dataset, **settings: Any) -> Fitted:
    """LSI in a hurry, on digits of 8 px: two rounds, four clients to a domain."""
    domains = [replace(d, images=nn.functional.avg_pool2d(d.images, 4)) for d in dataset.domains]
    small = replace(dataset, domains=tuple(domains))
    population = populate(small, TARGET, "single", 12, 0)
    world = Federation(tuple(population.clients), len(small.classes), 8, network, 0)
    method, none = lsi(select="last", **settings), Defense.named("none")()
    wire = Wire({name: len(data) for name, data in population.clients.items()}, none, Transcript())
    LocalEngine(1).run(method, world, population.clients, wire)
    return Fitted(population, method, world, none, wire.transcript)


@pytest.fixture(scope="module")
def weighed(digits: Dataset) -> Fitted:
    return fitted(shortened(digits, 120))


def subject_of(fitted: Fitted) -> tuple[Subject[Any], ImportanceCraft]:
    subject = fitted.proctor().subject(ImportanceWeights.kind)
    assert isinstance(subject.craft, ImportanceCraft)
    return subject, subject.craft


def holding(fitted: Fitted, name: str) -> Holding:
    data = fitted.population.data(name)
    return Holding(data.images, data.labels, subject_of(fitted)[0].sent[name])


# The craft


def test_importances_are_those_of_a_loop_over_images(digits: Dataset) -> None:
    trained = fitted(shortened(digits, 60), importance_per="sample")
    (name, *_) = trained.population.clients
    own, index = holding(trained, name), torch.tensor([4, 0, 2])
    made = subject_of(trained)[1].make(own, index, generator(1))
    model = subject_of(trained)[1].training.network()
    state = {key.removeprefix("model/"): t for key, t in made.tensors().items() if key.startswith("model/")}
    model.load_state_dict(state)
    for layer in (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)):
        layer.momentum = 1.0  # the statistics of the next pass alone
    model.train()(own.images[index])
    model.eval()
    slow = {key: torch.zeros_like(parameter) for key, parameter in model.named_parameters()}
    for image in own.images[index]:
        model.zero_grad()
        model(image[None]).square().sum().backward()
        for key, parameter in model.named_parameters():
            assert parameter.grad is not None
            slow[key] += parameter.grad.abs() / len(index)
    assert set(made.tensors()) == set(slow) | {f"model/{key}" for key in state}
    for key, wanted in slow.items():
        torch.testing.assert_close(made.tensors()[key], wanted, atol=1e-5, rtol=1e-4)


def test_the_wire_s_importances_are_made_again_of_the_same_draws() -> None:
    """Without the translator, which the craft leaves out, and where the client's generator is: the model bit for bit, the
    importances to rounding, since its network was laid out otherwise in memory."""
    method = lsi(invariance=0, select="last")
    _, transcript, _ = run(method)
    world, data = federation(), held("client-1", 6, 1)
    rng = stream(world.seed, "client-1")
    client = method.client(world, data, rng)
    client.pretrain([transcript.models_sent(0)["client-1"]])
    client.fit([])
    craft = training_craft(method, world, data)
    own = Holding(data.images, data.labels, transcript.models_sent(1)["client-1"])
    made = craft.make(own, torch.arange(len(data)), rng)
    crossed = [(r, a) for r, a in transcript.seen_by("client-1") if r.round == 1 and r.sender == "client-1"]
    weights, model = (
        next(a for r, a in crossed if r.kind == kind and a) for kind in ("importance_weights", "model_state")
    )
    assert set(made.tensors()) == set(weights.tensors()) | {f"model/{name}" for name in model.tensors()}
    for name, tensor in weights.tensors().items():
        torch.testing.assert_close(made.tensors()[name], tensor, atol=1e-6, rtol=1e-4)
    for name, tensor in model.tensors().items():
        assert torch.equal(made.tensors()[f"model/{name}"], tensor)


def training_craft(method: Any, world: Federation, data: Any) -> ImportanceCraft:
    training = import_module("fdgpriv.subjects.training").TrainingCraft
    return ImportanceCraft(training("model_state", method, world, Defense.named("none")(), data, 1), True)


def test_slopes_make_the_importances_of_the_wire(weighed: Fitted) -> None:
    """Under the model that crossed beside them, translator or not."""
    subject, craft = subject_of(weighed)
    for name in subject.clients[:3]:
        own, artifact = holding(weighed, name), subject.wire[name]
        assert own.sent is not None
        slopes = craft.slopes(own.images, artifact, own.sent, own.images)
        torch.testing.assert_close(craft.pooled(slopes), craft.last(artifact), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("output", ["logits", "paper"])
def test_slopes_of_one_image_are_its_gradient(output: str, rng: torch.Generator) -> None:
    method = lsi(importance_output=output, importance_sign="signed")
    model, images = method.model(federation(), rng), torch.rand(1, 3, 8, 8, generator=rng)
    slopes = method.slopes(model, images, images, torch.device("cpu"))[0]
    found = method.importances(model, images, torch.device("cpu"))
    last = torch.cat([found["head.linear.weight"].flatten(), found["head.linear.bias"]])
    torch.testing.assert_close(slopes, last, atol=1e-5, rtol=1e-4)


def test_an_artifact_stands_in_one_row_and_comes_back_from_it(weighed: Fitted) -> None:
    subject, craft = subject_of(weighed)
    for name, artifact in subject.wire.items():
        back = craft.unflat(craft.flat(artifact, subject.sent[name]), subject.sent[name]).tensors()
        assert set(back) == set(artifact.tensors())
        for key, tensor in artifact.tensors().items():
            torch.testing.assert_close(back[key], tensor, atol=1e-5, rtol=1e-5)


def test_where_clients_divide_the_model_that_was_sent_stands_in(digits: Dataset) -> None:
    divided = fitted(shortened(digits, 60), normaliser="clients", invariance=0)
    subject, craft = subject_of(divided)
    own, artifact = holding(divided, subject.clients[0]), subject.wire[subject.clients[0]]
    assert own.sent is not None
    model = craft.training.network()
    own.sent.load_into(model)
    assert set(artifact.tensors()) == {name for name, _ in model.named_parameters()}
    slopes = craft.training.method.slopes(model, own.images, own.images, torch.device("cpu"))  # type: ignore[attr-defined]
    assert torch.equal(craft.slopes(own.images, artifact, own.sent, own.images), slopes)
    back = craft.unflat(craft.flat(artifact, own.sent), own.sent)
    assert set(back.tensors()) == set(artifact.tensors())


@pytest.mark.parametrize("role", ["client", "third_party"])
def test_only_the_server_sees_importances(weighed: Fitted, role: str) -> None:
    subject, _ = subject_of(weighed)
    assert subject.refused(threat("server")) is None
    assert subject.refused(threat(role)) == f"the {role} is not granted has_updates"
    assert subject.earlier.keys() == subject.wire.keys()


# What is read from them


def examined(fitted: Fitted, name: str, per_client: Mapping[int, int], **settings: Any) -> dict[int | None, Marks]:
    proctor = fitted.proctor()
    proctor.per_client = per_client
    attack = Attack.named(name).configured(settings)
    sizes = tuple(size for size in attack.sizes if size in per_client or (size is None and None in attack.sizes))
    sittings = proctor.sittings(proctor.subject(ImportanceWeights.kind), threat("server"), sizes, reconstruction=False)
    return examine(attack, sittings, (), generator(1))[0]


def mean(marks: Marks, name: str = "attack") -> float:
    return float(np.mean(marks.headline[name]))


def test_a_single_image_is_told_from_all_others_and_more_images_hide_it(weighed: Fitted) -> None:
    marks = examined(weighed, "importance_membership", {1: 1, 5: 1}, public=40, draws=16)
    assert mean(marks[1]) > 0.98
    assert mean(marks[1]) > mean(marks[5]) > mean(marks[None]) - 0.05
    for name in ("noise", "random_style", "other_client"):
        assert abs(mean(marks[1], name) - 0.5) < 0.15


def test_the_label_of_one_image_is_read_from_its_importances(weighed: Fitted) -> None:
    marks = examined(weighed, "label_histogram", {1: 1}, practice_costly=25)
    assert mean(marks[1]) < 1.3 < min(mean(marks[1], name) for name in ("mean_image", "random_style", "other_client"))


@pytest.mark.parametrize("name", ["domain_inference", "linkage"])
def test_other_readers_of_properties_read_them(weighed: Fitted, name: str) -> None:
    marks = examined(weighed, name, {})
    assert all(np.isfinite(values).all() for found in marks.values() for values in found.headline.values())


# The likelihood ratio


def worlds(n: int, trials: int = 30) -> tuple[float, float]:
    """AUC of the ratio over averages with and without x, and what the best test of equal covariances reaches."""
    rng = generator(0)
    craft = SimpleNamespace(pooled=lambda slopes: slopes.mean(-2), batch=1)
    center = torch.randn(D, generator=rng)

    def some(*count: int) -> Tensor:
        return center + torch.randn(*count, D, generator=rng)

    test = attack_module.Simulated(craft, [some(2000)], n, 400, rng)
    area, power = [], []
    for _ in range(20):
        x = some(1)
        inside = (some(trials, n - 1).sum(1) + x) / n
        scores = torch.stack([test.log_ratio(own, [x])[0] for own in torch.cat([inside, some(trials, n).mean(1)])])
        area.append(float(marking.area(scores[None, :trials], scores[None, trials:])))
        power.append(float(norm.cdf(float((x - center).norm()) / n**0.5 / 2**0.5)))
    return float(np.mean(area)), float(np.mean(power))


@pytest.mark.parametrize("n", [5, 20, 50])
def test_the_ratio_has_the_power_of_the_best_test(n: int) -> None:
    found, best = worlds(n)
    assert found == pytest.approx(best, abs=0.06)


@pytest.mark.parametrize(("field", "least"), [("public", 2), ("draws", 8)])
def test_too_little_to_learn_from_is_refused(field: str, least: int) -> None:
    with pytest.raises(ValueError, match=f"importance_membership.{field}: want at least {least}, got 1"):
        Attack.named("importance_membership").configured({field: 1})
