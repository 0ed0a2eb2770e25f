"""hFedF and pFedHN: counts, products, weights and averages against plainer ones, and small federations end to end."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import factories
import pytest
import torch
from conftest import fit
from factories import count, equal, finite, held, seeded
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import AutoencoderState, ModelState, ModelUpdate
from fdgpriv.artifacts.statistics import ClientEmbedding
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.participant import stream
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Diverged
from fdgpriv.method import Method
from fdgpriv.models.backbone import Backbone
from fdgpriv.results.utility_finding import Utility
from fdgpriv.simulation.shared_model import last_sent
from fdgpriv.training import Cell, train
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.global_rng import drawing_from

align: Any = import_module("fdgpriv.methods.hfedf")
hyper: Any = import_module("fdgpriv.methods._hypernetwork")
networks: Any = import_module("fdgpriv.methods._client_network")
coding: Any = import_module("fdgpriv.methods._autoencoder")
moving: Any = import_module("fdgpriv.methods._moving_average")
HFedF: Any = Method.named("hfedf")
PFedHN: Any = Method.named("pfedhn")


class Toy(nn.Module):
    """A client network of 35 parameters: the means of three colours through a hidden layer."""

    def __init__(self, rng: torch.Generator) -> None:
        super().__init__()
        with drawing_from(rng):
            self.hidden, self.head = nn.Linear(3, 4), nn.Linear(4, 3)
        self.backbone = Backbone({"layer1": nn.Identity()}, {"layer1": 3}, (0.5,) * 3, (0.5,) * 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.hidden(self.backbone(images).mean(dim=(2, 3)))))
        return logits


@dataclass(frozen=True)
class SmallHFedF(HFedF):  # type: ignore[misc]
    """hFedF with a toy network."""

    def model(self, federation: Federation, rng: torch.Generator) -> Any:
        return Toy(rng)


@dataclass(frozen=True)
class SmallPFedHN(PFedHN):  # type: ignore[misc]
    """pFedHN with a toy network."""

    def model(self, federation: Federation, rng: torch.Generator) -> Any:
        return Toy(rng)


SMALL = {"rounds": 3, "batch_size": 4, "lr": 0.1, "local_epochs": 1, "hidden": 5, "server_lr": 0.05}


def no_network(rng: torch.Generator) -> Backbone:
    raise AssertionError("these methods have a network of their own")


def federation(clients: int = 3, side: int = 8) -> Federation:
    return factories.federation(clients, build=no_network, side=side)


def run(method: Any, *sizes: int, **more: Any) -> tuple[Any, Transcript]:
    """Three clients of 9 images, unless told."""
    ran = factories.run(method, *(sizes or (9, 9, 9)), build=no_network, **more)
    return ran.model, ran.transcript


def small(**settings: Any) -> Any:
    return SmallHFedF(**(SMALL | settings))


def network_of(clients: int = 3, e: int = 2, seed: int = 0, init: str = "default", double: bool = True) -> Any:
    made = hyper.Hypernetwork(clients, e, 5, 3, 0.01, Toy(seeded(seed + 1)), init, seeded(seed))
    return made.double() if double else made


# Sizes


def size_of_theta(made: nn.Module) -> int:
    """Parameters without the embeddings."""
    return sum(p.numel() for name, p in made.named_parameters() if name != "embeddings")


@pytest.mark.parametrize(
    ("classes", "client", "whole"), [(7, 928_199, 47_345_899), (65, 943_105, 48_106_105), (5, 927_685, 47_319_685)]
)
def test_the_networks_have_the_papers_parameters(classes: int, client: int, whole: int) -> None:
    network = networks.ClientNetwork(classes, 32, seeded(0))
    assert count(network) == client
    assert list(network.state_dict()) == [name for name, _ in network.named_parameters()]  # no buffers
    with torch.device("meta"):
        made = hyper.Hypernetwork(3, 1, 50, 3, 0.01, network, "default", seeded(0))
    assert size_of_theta(made) == whole == 51 * client + 7_750
    assert made.embeddings.shape == (3, 1)
    linear = [layer for layer in made.trunk if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(1, 50), (50, 50), (50, 50), (50, 50)]
    assert isinstance(made.trunk[-1], nn.Linear)  # no activation before the heads


@pytest.mark.parametrize(("clients", "e"), [(1, 1), (3, 1), (4, 2), (30, 8)])
def test_the_embedding_has_a_quarter_of_the_clients(clients: int, e: int) -> None:
    assert small().hypernetwork(federation(clients), seeded(0)).embeddings.shape == (clients, e)
    assert small(embedding_dim=6).hypernetwork(federation(clients), seeded(0)).embeddings.shape == (clients, 6)


def test_the_layers_have_the_shapes_of_table_9() -> None:
    network = networks.ClientNetwork(7, 32, seeded(0)).eval()
    images = torch.rand(2, 3, 32, 32)
    shapes = {stage: tuple(network.backbone.features(images, stage).shape[1:]) for stage in network.backbone.stages}
    assert shapes == {
        "stem": (32, 16, 16),
        "layer1": (32, 16, 16),
        "layer2": (64, 8, 8),
        "layer3": (176, 8, 8),
        "layer4": (288, 8, 8),
    }
    assert network.pool(network.backbone(images)).shape == (2, 2592)
    assert network(images).shape == (2, 7)


def test_an_inception_module_joins_its_branches() -> None:
    inception, features = networks.Inception(8), torch.randn(2, 8, 6, 6, generator=seeded(0))
    padded = nn.functional.pad(features, (1, 1, 1, 1), value=-math.inf)
    highest = torch.stack([padded[:, :, i : i + 6, j : j + 6] for i in range(3) for j in range(3)]).amax(0)
    parts = inception(features).split([32, 64, 16, 8], dim=1)
    expected = [inception.one(features), inception.three(features), inception.five(features), highest]
    for part, branch in zip(parts, expected, strict=True):
        torch.testing.assert_close(part, branch.clamp_min(0))


def test_dropout_draws_from_its_generator() -> None:
    ones, state = torch.ones(200, 100), torch.random.get_rng_state()
    first, again = (networks.Dropout(0.2, seeded(3))(ones) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(state, torch.random.get_rng_state())
    assert set(first.unique().tolist()) == {0.0, 1.25}
    assert float(first.mean()) == pytest.approx(1, abs=5 * 1.25 * math.sqrt(0.16 / ones.numel()))
    assert networks.Dropout(0.2, seeded(3)).eval()(ones) is ones


@pytest.mark.parametrize(("e", "parameters"), [(1, 13_492), (8, 4_097 * 8 + 9_395)])
def test_the_autoencoder_has_table_6_s_parameters(e: int, parameters: int) -> None:
    autoencoder = coding.Autoencoder(e, 32, seeded(0))
    assert count(autoencoder) == parameters
    images = torch.rand(2, 3, 32, 32)
    assert autoencoder.encoder(images).shape == (2, e)
    assert autoencoder(images).shape == images.shape
    assert 0 <= float(autoencoder(images).detach().min()) <= float(autoencoder(images).detach().max()) <= 1


# The hypernetwork and its products


def test_a_flat_model_is_the_parameters_in_order() -> None:
    toy, made = Toy(seeded(4)), network_of(double=False)
    flat = made.to_vector(toy.state_dict())
    assert torch.equal(flat, torch.cat([p.detach().flatten() for p in toy.parameters()]))
    state = made.from_vector(flat)
    assert list(state) == list(toy.state_dict())
    other = Toy(seeded(5))
    other.load_state_dict(state)
    assert torch.equal(made.to_vector(other.state_dict()), flat)


def parts_of(made: Any, back: Any, i: int) -> dict[str, Tensor]:
    """Client i's gradient, in full."""
    made.zero_grad()
    one = torch.zeros(len(back.rows), dtype=back.updates.dtype)
    one[i] = 1
    made.set_gradients(back, one, one)
    return {name: p.grad.clone() for name, p in made.named_parameters()}


def test_the_products_are_autograd_of_the_inner_product() -> None:
    made, rows = network_of(4), torch.tensor([0, 1, 3])
    updates = torch.randn(3, 31, generator=seeded(2), dtype=torch.float64)
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    loss = (weights @ (made(made.embeddings[rows]) * updates)).sum()
    expected = torch.autograd.grad(loss, list(made.parameters()))
    made.set_gradients(made.pullback(rows, updates), weights, weights)
    for parameter, gradient in zip(made.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-14)
    assert float(made.embeddings.grad[2].abs().max()) == 0


def test_products_of_factors_are_those_of_gradients() -> None:
    made, rows = network_of(4), torch.arange(4)
    back = made.pullback(rows, torch.randn(4, 31, generator=seeded(3), dtype=torch.float64))
    whole = [parts_of(made, back, i) for i in range(4)]
    theta = torch.stack([torch.cat([g.flatten() for n, g in one.items() if n != "embeddings"]) for one in whole])
    nu = torch.stack([one["embeddings"].flatten() for one in whole])
    torch.testing.assert_close(back.gram_theta(), theta @ theta.T, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(back.gram_embeddings(), nu @ nu.T, rtol=1e-11, atol=1e-12)


def test_the_products_hold_no_theta_per_client() -> None:
    made = hyper.Hypernetwork(12, 4, 50, 3, 0.01, nn.Linear(50, 400), "default", seeded(0))
    back = made.pullback(torch.arange(12), torch.randn(12, 20_400, generator=seeded(1)))
    theta = size_of_theta(made)
    held_in_all = sum(part.numel() for part in (back.updates, back.codes, back.trunk, back.embeddings))
    assert held_in_all < 12 * (20_400 + 8_200) < theta


def test_clients_start_near_an_ordinary_model() -> None:
    images, labels = torch.rand(32, 3, 32, 32, generator=seeded(0)), torch.arange(32) % 7
    network = networks.ClientNetwork(7, 32, seeded(1))
    made = hyper.Hypernetwork(3, 1, 50, 3, 0.01, network, "client", seeded(2))
    states = made.states(made.embeddings)
    for state in states:
        network.load_state_dict(state)
        loss = float(nn.functional.cross_entropy(network.eval()(images), labels).detach())
        assert loss == pytest.approx(math.log(7), abs=0.3)
    flats = [made.to_vector(state) for state in states]
    assert 0 < float((flats[0] - flats[1]).norm() / flats[0].norm()) < 0.36


# GradAlign


def gram(*vectors: Sequence[float]) -> Tensor:
    g = torch.tensor(vectors, dtype=torch.float64)
    return g @ g.T


def test_grad_align_on_the_example() -> None:
    three = gram((1, 0), (0, 1), (1, 1))
    torch.testing.assert_close(align.cosines(three), torch.tensor([0.5**0.5, 0.5**0.5, 1.0], dtype=torch.float64))
    for how, expected in (
        ("towards", [0.2994, 0.2994, 0.4013]),
        ("away", [0.3642, 0.3642, 0.2717]),
        ("off", [1 / 3] * 3),
    ):
        torch.testing.assert_close(align.weights(three, how), torch.tensor(expected).double(), rtol=0, atol=5e-5)


def test_cosines_are_those_of_the_vectors() -> None:
    g = torch.randn(5, 40, generator=seeded(0), dtype=torch.float64)
    expected = torch.cosine_similarity(g, g.mean(0, keepdim=True))
    torch.testing.assert_close(align.cosines(g @ g.T), expected)


@pytest.mark.parametrize("how", ["towards", "away", "off"])
def test_weights_sum_to_one_and_are_equal_among_equals(how: str) -> None:
    assert align.weights(gram((3, 4)), how).tolist() == [1.0]
    torch.testing.assert_close(align.weights(gram(*[(1, 2)] * 4), how), torch.full((4,), 0.25).double())
    torch.testing.assert_close(align.weights(gram(*[(0, 0)] * 4), how), torch.full((4,), 0.25).double())
    assert float(align.weights(gram((1, 2), (-1, -2), (5, 0)), how).sum()) == pytest.approx(1)


def test_a_zero_gradient_keeps_its_share() -> None:
    three = gram((1, 0), (0, 0), (2, 0))
    assert align.cosines(three).tolist() == pytest.approx([1, 0, 1])
    assert float(align.weights(three, "towards")[1]) == pytest.approx(1 / (1 + 2 * math.e))
    opposite = align.cosines(gram((1, 0), (-1, 0)))  # the mean is 0
    assert opposite.tolist() == [0, 0]


# The server's step, with a hand on each side


def moved_by(messages: Mapping[str, Sequence[Any]], moves: Mapping[str, float]) -> dict[str, list[Any]]:
    """Each client's answer where all its parameters moved by so much."""
    return {
        name: [
            ModelUpdate(client=name, round=0, state={k: torch.full_like(t, moves[name]) for k, t in one.state.items()})
        ]
        for name, (one, *_) in messages.items()
    }


def step(method: Any, updates: Mapping[str, float], clients: int = 3) -> tuple[Any, Any, dict[str, ModelState]]:
    """Models before and after one step of the server, where each client moved all parameters by this much; what was sent."""
    world = federation(clients)
    server = method.server(world, seeded(0))
    ask = next(server)
    sent: dict[str, ModelState] = {name: message[0] for name, message in ask.messages.items()}
    with pytest.raises(StopIteration) as done:
        server.send(moved_by(ask.messages, updates))
    start = method.hypernetwork(world, seeded(0))
    return start, done.value.value, sent


PLAIN = {"rounds": 1, "server_optimizer": "sgd", "server_weight_decay": 0.0, "server_lr": 1e-3}


def test_one_client_makes_hfedf_a_step_of_pfedhn() -> None:
    alike = SMALL | PLAIN | {"server_optimizer": "sgd_momentum", "weight_decay": 0.0}
    _, one, _ = step(SmallHFedF(**alike, warmup=5), {"client-0": 0.2}, clients=1)
    _, other, _ = step(SmallPFedHN(**alike, init="client", slope=0.01), {"client-0": 0.2}, clients=1)
    assert equal(one.state_dict(), other.state_dict())


def test_a_client_that_did_not_move_adds_nothing() -> None:
    moves = {"client-0": 0.2, "client-1": 0.0, "client-2": 0.2}
    start, end, _ = step(small(**PLAIN, align="off", ema="off", clip=1e9), moves)
    assert torch.equal(end.embeddings[1], start.embeddings[1])
    two = start.pullback(torch.tensor([0, 2]), torch.full((2, 31), 0.2))
    start.set_gradients(two, torch.full((2,), 1 / 3), torch.full((2,), 1 / 3))
    torch.optim.SGD(start.parameters(), 1e-3).step()
    torch.testing.assert_close(end.embeddings, start.embeddings.detach())
    torch.testing.assert_close(end.of("client-1").state_dict(), start.states(start.embeddings[1:2])[0])


def test_who_takes_no_part_keeps_its_embedding() -> None:
    method = small(**(PLAIN | {"rounds": 2, "server_lr": 1.0}), participants=1)
    model, transcript = run(method)
    took_part = {record.receiver for record in transcript.records} - {SERVER}
    start = method.hypernetwork(federation(), stream(0, SERVER))
    for i, name in enumerate(model.names):
        assert torch.equal(model.embeddings[i], start.embeddings[i]) == (name not in took_part)
    assert len(took_part) < 3


@pytest.mark.parametrize("optimizer", ["sgd", "sgd_momentum", "adam"])
def test_the_servers_optimisers_are_torchs(optimizer: str) -> None:
    method = small(
        **(PLAIN | {"server_optimizer": optimizer, "server_weight_decay": 0.01}), ema="off", align="off", clip=0.05
    )
    moves = {"client-0": 0.2, "client-1": -0.1, "client-2": 0.3}
    start, end, sent = step(method, moves)
    loss = torch.zeros(())
    for i, (name, state) in enumerate(sent.items()):
        update = torch.full((31,), moves[name])
        loss = loss + start(start.embeddings[i][None])[0] @ update / 3
        torch.testing.assert_close(state.state, start.states(start.embeddings[i][None])[0])
    loss.backward()
    gradients = [p.grad for p in start.parameters()]
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    kind, *momentum = {"sgd": ("SGD",), "sgd_momentum": ("SGD", 0.9), "adam": ("Adam",)}[optimizer]
    rule: Any = getattr(torch.optim, str(kind))
    for gradient in gradients:
        gradient.mul_(min(1.0, 0.05 / norm))
    rule(start.parameters(), 1e-3, *momentum, weight_decay=0.01).step()
    for i, name in enumerate(end.names):
        torch.testing.assert_close(
            end.of(name).state_dict(), start.states(start.embeddings[i][None])[0], rtol=1e-4, atol=1e-6
        )


# The moving average


def asked(method: Any, moves: Sequence[float]) -> tuple[list[tuple[str, dict[str, ModelState]]], Any]:
    """Each verb with the models sent, and the final models, where client i's update is moves[i] in every entry."""
    server, asks, answers = method.server(federation(len(moves)), seeded(0)), [], None
    while True:
        try:
            ask = server.send(answers)
        except StopIteration as done:
            return asks, done.value
        asks.append((ask.verb, {name: message[0] for name, message in ask.messages.items()}))
        answers = moved_by(ask.messages, dict(zip(ask.messages, moves, strict=True)))


def by_hand(method: Any, moves: Sequence[float]) -> tuple[list[Any], Any]:
    """The same with autograd and plain SGD: the networks that made the models of each round, and of the end."""
    live = method.hypernetwork(federation(len(moves)), seeded(0))
    average, makers = deepcopy(live), []
    for round in range(method.rounds):
        maker = average if method.ema == "shadow" else live
        makers.append(deepcopy(maker))
        models = maker(maker.embeddings)
        loss = sum((models[i] * move).sum() / len(moves) for i, move in enumerate(moves))
        gradients = torch.autograd.grad(loss, list(maker.parameters()))
        decay = (1 + math.cos(math.pi * round / method.rounds)) / 2 if method.server_schedule == "cosine" else 1
        for (name, new), mean, gradient in zip(live.named_parameters(), average.parameters(), gradients, strict=True):
            new.data -= method.server_lr * decay * gradient
            averaged = round > method.warmup and (name != "embeddings" or method.ema_embedding)
            kept = 1 - method.ema_decay if averaged else 0
            mean.data = torch.from_numpy((1 - kept) * new.data.numpy() + kept * mean.data.numpy())
            if method.ema == "replace":
                new.data = mean.data.clone()
    return makers, live if method.ema in ("replace", "off") else average


@pytest.mark.parametrize(("schedule", "embedding"), [("constant", True), ("cosine", True), ("constant", False)])
@pytest.mark.parametrize("ema", get_args(moving.EMA))
def test_what_is_sent_when_and_what_comes_back(ema: str, schedule: str, embedding: bool) -> None:
    plain = {"server_optimizer": "sgd", "server_weight_decay": 0.0, "align": "off", "clip": 1e9, "rounds": 5}
    method = small(**plain, server_lr=0.3, ema=ema, ema_decay=0.6, warmup=1)
    method = replace(method, server_schedule=schedule, ema_embedding=embedding)
    moves = (0.3, -0.1, 0.2)
    asks, end = asked(method, moves)
    makers, last = by_hand(method, moves)
    if ema == "evaluate":
        makers.append(last)
    assert [verb for verb, _ in asks] == ["fit"] * 5 + ["use"] * (ema == "evaluate")
    for (_, sent), maker in zip(asks, makers, strict=True):
        for model, state in zip(sent.values(), maker.states(maker.embeddings), strict=True):
            torch.testing.assert_close(model.state, state, rtol=1e-4, atol=1e-6)
    for name, state in zip(end.names, last.states(last.embeddings), strict=True):
        torch.testing.assert_close(dict(end.of(name).state_dict()), state, rtol=1e-4, atol=1e-6)
    rounds = [max(model.round for model in sent.values()) for _, sent in asks]
    assert rounds == [*range(5), *([5] if ema == "evaluate" else [])]


def test_an_evaluated_average_is_attacked() -> None:
    method = small(ema="evaluate", warmup=0, ema_decay=0.5)
    model, transcript = run(method, keep="ends")
    _, attacked = last_sent(transcript)
    live = transcript.models_sent(2)
    for name in federation().clients:
        torch.testing.assert_close(dict(model.of(name).state_dict()), attacked[name].state, rtol=1e-5, atol=1e-7)
        assert any(
            not torch.allclose(live[name].state[key], tensor, rtol=1e-3) for key, tensor in attacked[name].state.items()
        )
    assert {r.verb for r in transcript.records if r.receiver != SERVER} == {"fit", "use"}
    assert [r.verb for r in transcript.records if r.receiver == SERVER] == ["fit"] * 9


@pytest.mark.parametrize("preset", ["quick", "default"])
def test_hfedf_and_pfedhn_differ_by_known_settings(preset: str) -> None:
    one, other = (asdict(part.configured(part.presets[preset])) for part in (HFedF, PFedHN))
    alone = {"align", "ema", "ema_decay", "ema_embedding", "warmup"}
    alone |= {"embedding", "autoencoder_images", "autoencoder_epochs"}  # learned, as pFedHN's always are
    assert one.keys() - other.keys() == alone
    assert one["embedding"] == "learned"
    assert {name: value for name, value in one.items() if name not in alone} == other
    assert one["server_schedule"] == "cosine"


# The client


def test_a_client_answers_with_its_plain_update() -> None:
    data, method = (
        held("client-0", n=6),
        small(client_optimizer="sgd_momentum", momentum=0.9, weight_decay=0.01, clip=0.2),
    )
    client = method.client(federation(), data, seeded(1))
    sent = ModelState.of(Toy(seeded(7)), SERVER, 2)
    rng = seeded(1)
    toy = Toy(rng)
    sent.load_into(toy)
    optimizer = torch.optim.SGD(toy.parameters(), 0.1, 0.9, weight_decay=0.01)
    clipped = 0
    for index in (torch.randperm(6, generator=rng)[:4],):  # the short batch of two is dropped
        optimizer.zero_grad()
        nn.functional.cross_entropy(toy(data.images[index]), data.labels[index]).backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in toy.parameters() if p.grad is not None))
        clipped += norm > 0.2
        for parameter in toy.parameters():
            parameter.grad.mul_(min(1.0, 0.2 / norm))
        optimizer.step()
    assert clipped
    (update,) = client.fit([sent])
    assert (update.kind, update.client, update.round) == ("model_update", "client-0", 2)
    assert list(update.state) == list(sent.state)
    for name, parameter in toy.state_dict().items():
        torch.testing.assert_close(update.state[name], sent.state[name] - parameter, rtol=1e-4, atol=1e-6)


def test_local_steps_are_fresh_batches() -> None:
    drawn = list(small(local_steps=5).passes(9, seeded(0)))
    assert [len(index) for index in drawn] == [4] * 5
    assert all(len(set(index.tolist())) == 4 for index in drawn)
    assert [len(index) for index in small(local_steps=2).passes(3, seeded(0))] == [3, 3]
    everything = list(small(local_epochs=2).passes(9, seeded(0)))
    assert [len(set(index.tolist())) for index in everything] == [4] * 4
    assert all(not set(everything[i].tolist()) & set(everything[i + 1].tolist()) for i in (0, 2))


def test_embeddings_are_of_validation_images() -> None:
    data = held(n=12)
    method = small(embedding="autoencoder", autoencoder_images=5, autoencoder_epochs=2)
    server = method.server(federation(), seeded(0))
    ask = next(server)
    assert (ask.verb, list(ask.messages)) == ("embed", list(federation().clients))
    client = method.client(federation(), data, seeded(1))
    (embedding,) = client.embed(ask.messages["client-0"])
    assert isinstance(embedding, ClientEmbedding)
    assert embedding.vector.shape == (1,)
    told = {
        name: [ClientEmbedding(client=name, round=0, vector=torch.tensor([float(i)]))]
        for i, name in enumerate(ask.messages)
    }
    ask = server.send(told)
    assert ask.verb == "fit"
    start = method.hypernetwork(federation(), seeded(0))
    for i, message in enumerate(ask.messages.values()):
        expected = start.states(torch.tensor([[float(i)]]))[0]
        torch.testing.assert_close(message[0].tensors(), expected)


def coding_state(method: Any) -> AutoencoderState:
    """The autoencoder that the server sends."""
    (sent,) = next(method.server(federation(), seeded(0))).messages["client-0"]
    assert isinstance(sent, AutoencoderState)
    return sent


def graded(n: int, out: int = 2) -> ClientData:
    """Evenly grey images of n different levels."""
    images = torch.linspace(0.2, 0.8, n + out)[:, None, None, None].expand(-1, 3, 8, 8).clone()
    labels = torch.zeros(n + out, dtype=torch.long)
    return ClientData("client-0", images[:n], labels[:n], images[n:], labels[n:], 3)


def test_explained_variance_against_the_mean_image() -> None:
    images = torch.rand(5, 3, 4, 4, generator=seeded(0))
    mean = sum(images) / 5
    assert align.explained_variance(lambda x: x, images) == pytest.approx(1.0)
    assert align.explained_variance(lambda x: mean.expand_as(x), images) == pytest.approx(0.0, abs=1e-6)
    errors = [sum(float(v) ** 2 for v in (image - target).flatten()) for target in (mean, 0) for image in images]
    assert align.explained_variance(torch.zeros_like, images) == pytest.approx(1 - sum(errors[5:]) / sum(errors[:5]))
    assert align.explained_variance(torch.zeros_like, images[:1]) == 1.0  # one image has no variance


def test_an_autoencoder_trains_until_it_beats_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    method = small(embedding="autoencoder", autoencoder_images=16, autoencoder_epochs=4)
    explained = []
    for repeats in (1, 10):
        monkeypatch.setattr(align, "_AUTOENCODER_REPEATS", repeats)
        client = method.client(federation(), graded(16), seeded(1))
        client.embed([coding_state(method)])
        explained.append(client.log["autoencoder_explained_min"][0])
    assert explained[0] <= 0 < explained[1]


def test_a_poor_autoencoder_is_reported() -> None:
    method = small(embedding="autoencoder")
    told = method.training_warning({"autoencoder_explained_min": -0.25})
    assert told == (
        "a client's autoencoder reconstructs its images no better than their mean (explained variance -0.25); "
        "raise autoencoder_epochs"
    )
    assert method.training_warning({"autoencoder_explained_min": 0.02}) is None
    assert method.training_warning({}) is None


# Options


@pytest.mark.parametrize(
    "settings",
    [
        {"align": "away"}, {"align": "off"}, {"ema": "shadow"}, {"ema": "evaluate"}, {"ema": "off"},
        {"ema_embedding": False}, {"embedding": "random"}, {"embedding": "random", "ema": "shadow"},
        {"embedding": "autoencoder", "autoencoder_epochs": 1, "embedding_dim": 3}, {"client_optimizer": "adam"},
        {"client_optimizer": "sgd"}, {"server_optimizer": "sgd"}, {"server_optimizer": "sgd_momentum"},
        {"server_schedule": "cosine"}, {"init": "default"}, {"slope": 0.2}, {"depth": 1}, {"participants": 2},
        {"local_steps": 2}, {"clip": 0.01},
    ],
    ids=str,
)  # fmt: skip
def test_every_option_trains_and_changes_the_outcome(settings: dict[str, Any]) -> None:
    usual, _ = run(small(warmup=0))
    model, transcript = run(small(**({"warmup": 0} | settings)))
    assert finite(model.state_dict())
    assert any(not torch.equal(a, b) for a, b in zip(model.common.parameters(), usual.common.parameters(), strict=True))
    kinds = {record.kind for record in transcript.records}
    told = {"autoencoder_state", "client_embedding"} if settings.get("embedding") == "autoencoder" else set()
    assert kinds == {"model_state", "model_update"} | told


def test_near_embeddings_give_near_models() -> None:
    near, far = (small(embedding_std=std).hypernetwork(federation(), seeded(0)) for std in (0.01, 1.0))
    torch.testing.assert_close(near.embeddings, 0.01 * far.embeddings)
    apart = [torch.pdist(one(one.embeddings)).max() for one in (near, far)]
    assert apart[0] < 0.05 * apart[1]
    method, drawn = small(embedding="random", embedding_std=0.01), small(embedding="random")
    for one, hypernetwork in ((method, near), (drawn, far)):
        hypernetwork.embeddings.requires_grad_(False)
        one.after_step(hypernetwork, seeded(1))
    torch.testing.assert_close(near.embeddings, 0.01 * far.embeddings)


def test_random_embeddings_are_drawn_each_step() -> None:
    world = federation()
    method = small(embedding="random", server_lr=1e-9, ema="off")
    server = method.server(world, seeded(0))
    ask, seen = next(server), []
    for _ in range(3):
        seen.append(torch.cat([t.flatten() for t in ask.messages["client-0"][0].tensors().values()]))
        try:
            ask = server.send(moved_by(ask.messages, dict.fromkeys(ask.messages, 0.0)))
        except StopIteration:
            break
    assert len(seen) == 3
    assert not torch.allclose(seen[0], seen[1], atol=1e-6)
    assert not torch.allclose(seen[1], seen[2], atol=1e-6)


# Odd data


@pytest.mark.parametrize("part", [SmallHFedF, SmallPFedHN])
@pytest.mark.parametrize("n", [1, 2])
def test_one_client_with_few_images_trains(part: Any, n: int) -> None:
    model, transcript = run(part(**(SMALL | {"participants": None})), n, labels=(0,) * n)
    assert len(transcript.records) == 6
    assert finite(model.state_dict())
    for a, b in zip(model.common.parameters(), model.of("client-0").parameters(), strict=True):
        torch.testing.assert_close(a, b)  # the mean of one embedding is that embedding


def test_the_real_network_trains_on_one_image() -> None:
    method = HFedF(rounds=1, local_epochs=1)
    client = method.client(federation(), held("client-0", n=1), seeded(0))
    (update,) = client.fit([ModelState.of(method.model(federation(), seeded(1)), SERVER, 0)])
    assert update.not_finite() is None
    assert sum(int(t.count_nonzero()) for t in update.state.values()) > 1000


def test_too_small_images_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="want images of at least 4 px, got 3"):
        HFedF().model(federation(side=3), seeded(0))
    with pytest.raises(ValueError, match="divisible by 4 for an autoencoder, got 30 px"):
        HFedF(embedding="autoencoder").model(federation(side=30), seeded(0))


def test_an_autoencoder_needs_validation_images() -> None:
    with pytest.raises(ValueError, match=r"hfedf\.embedding: want validation images at client-0, got none"):
        run(small(embedding="autoencoder"), 9, out=0)


def test_training_that_diverges_is_told() -> None:
    with pytest.raises(Diverged, match="try a smaller lr"):
        run(small(server_optimizer="sgd", server_lr=1e30, clip=1e30, rounds=9))


# Federations


def test_each_client_is_sent_its_own_model() -> None:
    _, transcript = run(small(init="default"))
    sent = transcript.models_sent(1)
    assert sorted(sent) == list(federation().clients)
    flats = [torch.cat([t.flatten() for t in state.state.values()]) for state in sent.values()]
    assert not torch.equal(flats[0], flats[1])
    assert transcript.model_sent(1) is None
    shared = [r for r in transcript.records if r.receiver != SERVER]
    assert all((r.kind, r.origin, r.level, r.relayed) == ("model_state", SERVER, "group", False) for r in shared)
    updates = [r for r in transcript.records if r.receiver == SERVER]
    assert all((r.kind, r.level, r.clients) == ("model_update", "client", 1) for r in updates)
    assert {r.clients for r in shared if r.round == 1} == {3}  # all trained into theta


def test_the_result_has_common_and_personal_models() -> None:
    model, _ = run(small())
    images = torch.rand(4, 3, 8, 8)
    assert torch.equal(model(images), model.common(images))
    method = small()
    for name in federation().clients:
        assert method.model_of(model, name) is model.of(name)
    assert model.embeddings.shape == (3, 1)


def test_a_global_model_is_every_clients() -> None:
    fedavg, model = Method.named("fedavg")(), nn.Linear(1, 1)
    assert not fedavg.personal
    assert fedavg.model_of(model, "client-0") is model


def test_the_counterpart_s_model_is_another_s(tiny: Dataset) -> None:
    """Only those are evaluated whose counterpart was sent a model in the last round."""
    settings = {"participants": "2", "rounds": "3", "hidden": "4"}
    target = fit(tiny, clients=5, method="hfedf", settings=settings).evaluator().series("global_model")
    sent = {id(model): name for name, model in target.wire.items()}
    assert len(sent) == len(target.wire) == len(target.clients) == 2
    assert all(target.receiver[name] != name for name in target.clients)


@pytest.mark.parametrize(("participants", "rounds"), [pytest.param("none", [1, 2], marks=pytest.mark.slow), ("2", [2])])
def test_rounds_of_some_clients_are_not_evaluated(
    tiny: Dataset, tmp_path: Path, participants: str, rounds: list[int]
) -> None:
    settings = {"rounds": "2", "local_epochs": "1", "batch_size": "32", "hidden": "4", "participants": participants}
    config = AuditConfig(methods=("hfedf",), preset="quick", settings=settings, clients=3, device="cpu").checked()
    trained, _ = train(config, tiny, Cell("hfedf", tiny.default_target, 0, "none"), tmp_path, ProgressLog(), 2)
    assert trained.utility is not None
    assert [entry.round for entry in trained.utility.rounds] == rounds


@pytest.mark.slow
def test_an_audit_tries_every_client_s_model(tiny: Dataset, tmp_path: Path) -> None:
    config = AuditConfig(
        methods=("hfedf",),
        preset="quick",
        settings={"rounds": "2", "local_epochs": "1", "batch_size": "32", "hidden": "4"},
        clients=3,
        partition="domains:2",
        device="cpu",
    ).checked()
    cell = Cell("hfedf", tiny.default_target, 0, "none")
    trained, evaluator = train(config, tiny, cell, tmp_path, ProgressLog(), 2)
    found = trained.utility
    assert isinstance(found, Utility)
    assert [row.client for row in found.personal.clients] == list(evaluator.population.clients)
    assert [entry.round for entry in found.rounds] == [1, 2]
    last = found.rounds[-1]
    assert last.target_accuracy == pytest.approx(sum(r.target_accuracy for r in found.personal.clients) / 3, abs=1e-6)
    assert (last.source_accuracy, last.target_accuracy) == (
        found.personal.source_accuracy.value,
        found.personal.target_accuracy.value,
    )
    assert not evaluator.shares_styles
    again, _ = train(config, tiny, cell, tmp_path, ProgressLog(), 2)  # read from disk
    assert again == trained
