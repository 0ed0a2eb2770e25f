"""User code may change in place what it is given: scores, transcripts and the caller's tensors stay the same."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import Evaluator, Fitted, fit, shortened
from factories import evaluated, refused
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact, Message
from fdgpriv.artifacts.moments import RULES
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.defense import Combined, Defense, SharedContent
from fdgpriv.external.recorded_method import BatchEncoderStyles, EncoderStyles, Network
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.simulation.mixture import Mixture
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.utils.seeds import generator

FedAvg: Any = import_module("fdgpriv.methods.fedavg").FedAvg
averaging: Any = import_module("fdgpriv.methods._averaging")


@pytest.fixture(scope="module")
def averaged(digits: Dataset) -> Fitted:
    return fit(shortened(digits, 32), clients=3, method="fedavg", settings={"rounds": "2"}, keep="all")


@pytest.fixture(scope="module")
def stylised(digits: Dataset) -> Fitted:
    return fit(shortened(digits, 32), clients=3, settings={"rounds": "2"}, keep="all")


def zeroed(artifacts: Sequence[Artifact]) -> None:
    for artifact in artifacts:
        for tensor in artifact.tensors().values():
            tensor.zero_()


class Dirty(FedAvg):  # type: ignore[misc]
    """FedAvg whose server and clients overwrite whatever they were given, and what they gave away."""

    def aggregation(self, federation: Any) -> Any:
        return DirtyAggregation(self)

    def client(self, federation: Any, data: ClientData, rng: torch.Generator) -> Any:
        return DirtyClient(self, federation, data, rng)

    def server(self, federation: Any, rng: torch.Generator) -> Any:
        requests = super().server(federation, rng)
        request = next(requests)
        while True:
            answers = yield request
            zeroed([artifact for message in request.messages.values() for artifact in message])
            try:
                request = requests.send(answers)
            except StopIteration as done:
                return done.value
            finally:
                zeroed([artifact for message in answers.values() for artifact in message])


class DirtyAggregation(averaging.Aggregation):  # type: ignore[misc]
    def merge(self, model: nn.Module, answers: Any, round: int) -> None:
        super().merge(model, answers, round)
        zeroed([artifact for message in answers.values() for artifact in message])


class DirtyClient(averaging.AveragingClient):  # type: ignore[misc]
    def fit(self, message: Message) -> Message:
        zeroed(getattr(self, "answered", []))
        self.answered: Message = super().fit(message)
        zeroed(message)
        if message[0].round == 1:
            for tensor in (self.data.pixels, self.data.images, self.data.labels, self.data.held_out_pixels):
                tensor.zero_()
        return self.answered


def test_a_method_changes_neither_images_nor_what_crossed_the_wire(averaged: Fitted) -> None:
    clients = averaged.population.clients
    before = {name: (data.pixels.clone(), data.labels.clone(), data.images.clone()) for name, data in clients.items()}
    wire = Wire({name: len(data) for name, data in clients.items()}, averaged.defense, Transcript("all"))
    fields = {name: getattr(averaged.method, name) for name in ("rounds", "local_epochs", "batch_size", "lr")}
    plain, dirty = (kind(**fields) for kind in (FedAvg, Dirty))
    expected = Wire(wire.sizes, averaged.defense, Transcript("all"))
    LocalEngine(1).run(plain, averaged.federation, clients, expected)
    LocalEngine(1).run(dirty, averaged.federation, clients, wire)
    for name, data in clients.items():
        assert all(
            torch.equal(a, b) for a, b in zip(before[name], (data.pixels, data.labels, data.images), strict=True)
        )
    assert len(wire.transcript.records) == len(expected.transcript.records)
    for index, artifact in expected.transcript.kept.items():
        tensors = wire.transcript.kept[index].tensors()
        assert all(torch.equal(tensor, tensors[name]) for name, tensor in artifact.tensors().items())


class Halved(Defense):
    """Halves what is shared."""

    def protect(self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None) -> Any:
        artifact = outgoing if isinstance(outgoing, Artifact) else outgoing.finish()
        return artifact.map(lambda tensor: tensor / 2 if tensor.is_floating_point() else tensor.clone())


class HalvedInPlace(Halved):
    """The same, in place."""

    def protect(self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None) -> Any:
        protected = super().protect(outgoing, rng, received)
        if isinstance(outgoing, Artifact):
            zeroed([outgoing])
        else:
            outgoing.mean.zero_(), outgoing.std.zero_()  # type: ignore[unused-coroutine]
        zeroed([] if received is None else [received])
        return protected

    def relayed(self, artifact: Artifact, latest: Any) -> Artifact:
        copy = artifact.map(torch.clone)
        zeroed([artifact, *latest.values()])
        return copy


@pytest.mark.parametrize("combined", [False, True])
def test_a_defense_changes_nothing_but_what_it_returns(stylised: Fitted, combined: bool) -> None:
    kept, figures = [], []
    for part in (Halved(), HalvedInPlace()):
        defense = Combined((part, Defense.named("none")())) if combined else part
        sizes = {name: len(data) for name, data in stylised.population.clients.items()}
        wire = Wire(sizes, defense, Transcript("all"))
        LocalEngine(1).run(stylised.method, stylised.federation, stylised.population.clients, wire)
        kept.append(wire.transcript.kept)
        parts = (stylised.population, stylised.method, stylised.federation, defense, wire.transcript, 0)
        scores = evaluated(Evaluator(*parts), "domain_inference:simulations=4", StyleStatistics.kind, [1, None])
        figures.append({size: by_size.headline for size, by_size in scores.items()})
    assert figures[0] == figures[1]
    for index, artifact in kept[0].items():
        assert all(torch.equal(t, kept[1][index].tensors()[name]) for name, t in artifact.tensors().items())


class Spoiler(Attack):
    """Overwrites all that it is given."""

    reads = (StyleStatistics, ModelState)
    task = DomainLabel()
    threats = ("server",)

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Any:
        given = [adversary.candidates, *(p for domain in adversary.auxiliary for p in (domain.pixels, domain.images))]
        given += [domain.labels for domain in (*adversary.auxiliary, *adversary.held_back)]
        given += [*adversary.public_images, *adversary.practice_images]
        artifacts = [*adversary.earlier, *adversary.latest]
        for _, shared in adversary.earlier_rounds:
            artifacts += shared
        for observation in observations:
            given += [observation.candidates, observation.membership_candidates]
            artifacts += [] if observation.received_model is None else [observation.received_model]
            for seen in adversary.view(observation):
                artifacts += [seen.artifact, *seen.others.values(), *seen.received_models.values()]
            sent = [observation.sent]
            while sent:
                part = sent.pop()
                sent += [part.base, part.leak] if isinstance(part, Mixture) else []
                artifacts += [] if isinstance(part, Mixture) else [part]
        for tensor in given:
            tensor.zero_()
        zeroed(artifacts)
        return torch.full((len(observations), len(adversary.sources)), 1 / len(adversary.sources))


@pytest.mark.parametrize("kind", [StyleStatistics.kind, ModelState.kind])
def test_an_attack_changes_nothing_for_the_next_one(stylised: Fitted, kind: str) -> None:
    sizes = [1, None] if kind == StyleStatistics.kind else [None]
    attack = "domain_inference:simulations=4"
    expected = evaluated(stylised.evaluator(), attack, kind, sizes)
    evaluator = stylised.evaluator()
    evaluated(evaluator, Spoiler(), kind, sizes)
    scores = evaluated(evaluator, attack, kind, sizes)
    assert [scores[size].headline for size in sizes] == [expected[size].headline for size in sizes]


class AddsNothing(Spoiler):
    """Adds 0 in place to some of what it is given."""

    def __init__(self, what: str) -> None:
        self.what = what

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Any:
        parts = {
            "candidates": adversary.candidates,
            "auxiliary images": adversary.auxiliary[0].images,
            "observed artifacts": next(iter(observations[0].artifact.tensors().values())),
        }
        parts[self.what].add_(0)
        return torch.full((len(observations), len(adversary.sources)), 1 / len(adversary.sources))


@pytest.mark.parametrize("what", ["candidates", "auxiliary images", "observed artifacts"])
def test_an_attack_of_the_package_that_changes_what_it_is_given_fails(
    what: str, stylised: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated(stylised.shared, "domain_inference:simulations=4", StyleStatistics.kind, [None])  # computes float images
    evaluated(stylised.shared, AddsNothing(what), StyleStatistics.kind, [None])
    monkeypatch.setattr(AddsNothing, "__module__", "fdgpriv.attacks.adds_nothing")
    with refused(f"adds_nothing: want an attack that works on copies, got one that changed {what} in place"):
        evaluated(stylised.shared, AddsNothing(what), StyleStatistics.kind, [None])


class Net(nn.Module):
    """A network that changes its images in place; `features` too."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.head, self.in_place = nn.Linear(4, 3), in_place

    def features(self, images: Tensor) -> Tensor:
        images = images.sub_(0.5) if self.in_place else images - 0.5
        return self.norm(self.conv(images))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).relu_().mean((2, 3)))


def networks() -> tuple[Network, Network]:
    """A network and a normalisation that change nothing in place, and the same that do."""
    torch.manual_seed(0)
    pure, dirty = Net(False), Net(True)
    dirty.load_state_dict(pure.state_dict())
    return Network(pure, lambda images: 2 * images, 3), Network(dirty, lambda images: images.mul_(2), 3)


def test_normalize_and_the_network_get_copies() -> None:
    images = torch.rand(5, 3, 8, 8)
    before = images.clone()
    outputs = [network.new()(images) for network in networks()]
    assert torch.equal(*outputs)
    assert all(torch.equal(network.adapted(images), 2 * before) for network in networks())
    plain, in_place = (Network(Net(in_place), None, 3) for in_place in (False, True))
    in_place.new()(images), plain.new()(images)
    assert torch.equal(images, before)


def test_train_gets_copies() -> None:
    def train(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator) -> None:
        loss = nn.functional.cross_entropy(model.train()(images.clone()), labels)
        loss.backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        images.zero_(), labels.zero_()  # type: ignore[unused-coroutine]

    images, labels = torch.rand(6, 3, 8, 8), torch.arange(6) % 3
    data = ClientData("a", images, labels, images[:0], labels[:0], 3)
    before = images.clone(), labels.clone()
    models = []
    for network in networks():
        model = network.new()
        network.train(train, model, data, 0, generator(0))
        models.append(model.state_dict())
    assert torch.equal(images, before[0])
    assert torch.equal(labels, before[1])
    assert all(torch.equal(tensor, models[1][name]) for name, tensor in models[0].items())


@pytest.mark.parametrize("source", [EncoderStyles, BatchEncoderStyles])
def test_an_encoder_gets_copies_of_images_and_model(source: type[EncoderStyles]) -> None:
    def pure(model: Any) -> Any:
        return lambda images: model.features(images).detach()

    def dirty(model: Any) -> Any:
        model.head = nn.Identity()

        def features(images: Tensor) -> Tensor:
            computed = model.features(images).detach()
            images.zero_()
            return computed

        return features

    images = torch.rand(6, 3, 8, 8)
    before, moments = images.clone(), []
    for network, encoder in zip(networks(), (pure, dirty), strict=True):
        model = network.new()
        expected = [name for name, _ in model.named_parameters()]
        styles = source(encoder, network, "features", True)
        moments.append(styles.of_client(model, images, "features", RULES["pooled_biased"]))
        framed = styles.in_frame_of(model, images, "features")
        assert [name for name, _ in model.named_parameters()] == expected
        assert not torch.equal(framed.norm.running_mean, model.norm.running_mean) or source is EncoderStyles
    assert torch.equal(images, before)
    assert all(torch.equal(a, b) for a, b in zip(*moments, strict=True))


def test_parts_of_the_package_are_no_user_code(averaged: Fitted) -> None:
    data = next(iter(averaged.population.clients.values()))
    assert Method.named("fedavg")().client(averaged.federation, data, generator(0)).data is data
    copy = replace(data).copied()
    assert copy.pixels.data_ptr() != data.pixels.data_ptr()
    assert torch.equal(copy.pixels, data.pixels)
