"""StableFDG as a whole: style information from a plain loop, who receives whose, what each option changes, determinism."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any

import factories
import pytest
import torch
from factories import SURE, equal, held, seeded, small
from scipy import stats
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.moments import RULES
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.transcript import Transcript
from fdgpriv.method import Method
from fdgpriv.models.backbone import Backbone, backbone
from fdgpriv.results.ledger import ledger

part: Any = import_module("fdgpriv.methods.stablefdg")
client_part: Any = import_module("fdgpriv.methods._stable_client")

network = factories.network(1, 1, 2, 1)
STAGES = ("layer1", "layer2", "layer3", "layer4")


def federation(clients: int = 3) -> Federation:
    return factories.federation(clients, build=network)


def style(client: str, vector: float | Tensor, round_: int = 0) -> StyleStatistics:
    return factories.style(vector, 1.0, 0.0, 0.0, client=client, round=round_)


def stablefdg(**settings: Any) -> Any:
    return small("stablefdg", **{"batch_size": 32} | settings)


def used_model(method: Any) -> Any:
    """A global model whose BatchNorm buffers are no longer those of the start."""
    model, rng = method.model(federation(), seeded(5)), seeded(6)
    for name, value in model.state_dict().items():
        if name.endswith(("running_var", "bn.weight")):
            value.copy_(torch.rand(value.shape, generator=rng) + 0.5)
        elif name.endswith("running_mean"):
            value.copy_(torch.randn(value.shape, generator=rng) * 0.3)
    return model


def asked_for_style(method: Any, data: ClientData, round_: int = 0) -> tuple[Any, StyleStatistics, Any]:
    """The client, its style information of a used global model, and that model."""
    model = used_model(method)
    client = method.client(federation(), data, seeded(1))
    (draft,) = client.style([ModelState.of(model, SERVER, round_)])
    assert isinstance(draft, StyleDraft)
    return client, draft.finish(), model


# Step 1: style information


@pytest.mark.parametrize(("layer", "n"), [("layer1", 1), ("layer1", 7), ("layer3", 7)])
def test_styles_are_eq_2_in_eval_mode(layer: str, n: int) -> None:
    data = held(n=n, flip=True, translate=0.25)  # allowed in training, not here
    _, phi, model = asked_for_style(stablefdg(style_layer=layer, batch_size=2, style_mode="eval"), data)
    eps = RULES[phi.rule].eps
    assert not RULES[phi.rule].unbiased
    model.eval()
    means: list[list[float]] = []
    stds: list[list[float]] = []
    with torch.no_grad():
        for i in range(n):
            (features,) = model.backbone.features(data.images[i : i + 1], layer)
            pixels = [[float(v) for v in channel.flatten()] for channel in features]
            means.append([statistics.fmean(values) for values in pixels])
            stds.append([math.sqrt(statistics.pvariance(values) + eps) for values in pixels])
    for c in range(4):
        mean, std = [row[c] for row in means], [row[c] for row in stds]
        assert float(phi.mean[c]) == pytest.approx(statistics.fmean(mean), abs=1e-5)
        assert float(phi.std[c]) == pytest.approx(statistics.fmean(std), abs=1e-5)
        assert float(phi.mean_var[c]) == pytest.approx(statistics.pvariance(mean), rel=1e-3, abs=1e-7)
        assert float(phi.std_var[c]) == pytest.approx(statistics.pvariance(std), rel=1e-3, abs=1e-7)
    assert (phi.client, phi.level, phi.layer, len(phi.vector())) == ("client-0", "client", layer, 16)


def normalised_by_hand(model: Any, images: Tensor) -> Tensor:
    """The first stage's output in double precision, a batch (B, 3, 8, 8) normalised by its own mean and biased variance."""
    convolution, norm, _ = model.backbone.body["layer1"]
    inputs = nn.functional.conv2d((images - 0.5) / 0.5, convolution.weight, convolution.bias, 1, 1).double()
    channels = inputs.transpose(0, 1).flatten(1)
    center, variance = channels.mean(1), channels.var(1, correction=0)
    unit = (inputs - center[:, None, None]) / (variance[:, None, None] + norm.eps).sqrt()
    return (unit * norm.weight[:, None, None] + norm.bias[:, None, None]).clamp_min(0)


@pytest.mark.parametrize(("n", "sizes"), [(2, [2]), (7, [7]), (8, [4, 4]), (11, [6, 5])])
def test_styles_are_eq_2_over_whole_batches(n: int, sizes: list[int]) -> None:
    """Batches of at least 4, none left out, under their own statistics; and the model that trains is left alone."""
    data = held(n=n, flip=True, translate=0.25)  # allowed in training, not here
    client, phi, model = asked_for_style(stablefdg(batch_size=4), data)
    assert equal(model.state_dict(), client.model.state_dict())
    with torch.no_grad():
        pixels = torch.cat([normalised_by_hand(model, part) for part in data.images.split(sizes)]).flatten(2)
    eps = RULES[phi.rule].eps
    mean, std = pixels.mean(2), (pixels.var(2, correction=0) + eps).sqrt()
    for found, expected in ((phi.mean, mean.mean(0)), (phi.std, std.mean(0))):
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(phi.mean_var.double(), mean.var(0, correction=0), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(phi.std_var.double(), std.var(0, correction=0), rtol=1e-3, atol=1e-6)


def test_an_adversary_computes_the_client_s_style() -> None:
    data, method = held(n=11), stablefdg(batch_size=4)
    _, phi, model = asked_for_style(method, data)
    mean, std = method.styles().of_client(model.eval(), data.images, "layer1", RULES[phi.rule])
    assert torch.equal(mean.mean(0), phi.mean)
    assert torch.equal(std.mean(0), phi.std)


def test_one_image_in_the_frame_of_its_batch() -> None:
    """The running variance is unbiased, that of a batch is not: 1 in 12 x 64 apart."""
    method, images = stablefdg(), held(n=12).images
    model = used_model(method).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    framed = method.styles().in_frame_of(model, images, "layer1")
    with torch.no_grad():
        one = framed.backbone.features(images[3:4], "layer1").double()
        torch.testing.assert_close(one, normalised_by_hand(model, images)[3:4], rtol=0, atol=5e-3)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    for still in (stablefdg(style_mode="eval"), stablefdg(buffers="freeze")):
        assert still.styles().in_frame_of(model, images, "layer1") is model


def test_asking_for_the_style_changes_nothing() -> None:
    data = held(n=5, flip=True, translate=0.25)
    client, first, model = asked_for_style(stablefdg(), data)
    draws = client.rng.get_state()
    (again,) = client.style([ModelState.of(model, SERVER, 0)])
    assert torch.equal(first.vector(), again.finish().vector())
    assert torch.equal(draws, client.rng.get_state())
    assert equal(model.state_dict(), client.model.state_dict())


def test_released_styles_are_of_augmented_batches() -> None:
    data = held(n=41, flip=True, translate=0.25)
    client, phi, model = asked_for_style(stablefdg(code_compat=True, batch_size=20), data)
    assert phi.rule == "dassl"
    (draft,) = client.style([ModelState.of(model, SERVER, 0)])
    assert len(draft.mean) == 40
    assert not torch.equal(draft.finish().vector(), phi.vector())
    unaltered = held(n=20, seed=3)
    (draft,) = (
        stablefdg(code_compat=True, batch_size=20)
        .client(federation(), unaltered, seeded(1))
        .style([ModelState.of(model, SERVER, 0)])
    )
    with torch.no_grad():
        features = model.train().backbone.features(unaltered.images, "layer1")
    expected = torch.stack([features.mean((2, 3)), (features.var((2, 3), correction=1) + 1e-6).sqrt()])
    found = torch.stack([draft.mean, draft.std])
    for row in range(2):
        torch.testing.assert_close(found[row].sort(0).values, expected[row].sort(0).values, rtol=0, atol=1e-5)


# Who receives whose


@pytest.mark.parametrize("n", [2, 3, 5])
def test_every_derangement_is_equally_likely(n: int) -> None:
    every = [order for order in permutations(range(n)) if all(order[i] != i for i in range(n))]
    rng, draws = seeded(0), 60 * len(every)
    seen = Counter(tuple(part.derangements(n, 1, rng)[0]) for _ in range(draws))
    assert set(seen) == set(every)
    if len(every) > 1:
        assert stats.chisquare([seen[order] for order in every]).pvalue > SURE


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_several_derangements_agree_nowhere(n: int) -> None:
    for count in range(1, n):
        for seed in range(5):
            orders = part.derangements(n, count, seeded(seed))
            assert len(orders) == count
            for i in range(n):
                assert len({i, *(order[i] for order in orders)}) == count + 1
            assert all(sorted(order) == list(range(n)) for order in orders)


def test_several_derangements_are_uniform() -> None:
    seen = Counter(tuple(sorted(order[0] for order in part.derangements(5, 2, seeded(seed)))) for seed in range(600))
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > SURE


def test_derangements_that_cannot_be_are_refused() -> None:
    for n, count in ((1, 1), (1, 0), (0, 0), (3, 3), (2, 2)):
        with pytest.raises(ValueError, match="want"):
            part.derangements(n, count, seeded(0))


Told = dict[str, list[str]]


def told(styles: Mapping[str, StyleStatistics], seed: int = 0, **settings: Any) -> Told:
    """By client, whose style it is sent, from a server driven by hand."""
    server = stablefdg(**settings).server(federation(len(styles)), seeded(seed))
    ask = next(server)
    assert (ask.verb, ask.reduce) == ("style", None)
    assert {name: [(a.kind, a.client) for a in message] for name, message in ask.messages.items()} == {
        name: [("model_state", SERVER)] for name in styles
    }
    ask = server.send({name: [styles[name]] for name in ask.messages})
    assert ask.verb == "fit"
    assert all(artifact is styles[artifact.client] for message in ask.messages.values() for artifact in message)
    return {name: [artifact.client for artifact in message] for name, message in ask.messages.items()}


def named(*vectors: float | Tensor) -> dict[str, StyleStatistics]:
    return {name: style(name, vector) for name, vector in zip(federation(len(vectors)).clients, vectors, strict=True)}


@pytest.mark.parametrize(("n", "received"), [(2, 1), (5, 1), (5, 3), (4, 3), (3, 3)])
def test_the_server_passes_on_disjoint_derangements(n: int, received: int) -> None:
    for seed in range(10):
        given = told(named(*map(float, range(n))), seed, received=received)
        count = min(received, n - 1)
        assert all(len(set(others) - {name}) == len(others) == count for name, others in given.items())
        assert Counter(other for others in given.values() for other in others) == dict.fromkeys(given, count)


def test_the_pairing_is_drawn_anew_every_round() -> None:
    method = stablefdg(rounds=12)
    model, server = method.model(federation(), seeded(0)), method.server(federation(4), seeded(0))
    ask, seen = next(server), set()
    for _ in range(11):
        ask = server.send({name: [style(name, 0.0)] for name in ask.messages})
        seen.add(str({name: message[0].client for name, message in ask.messages.items()}))
        ask = server.send({name: [ModelState.of(model, name, 0)] for name in ask.messages})
    assert len(seen) > 3  # of 9


def test_farthest_sharing_sends_the_farthest_styles() -> None:
    given = told(named(0.0, 1.0, 3.0, 10.0), sharing="farthest")
    assert list(given.values()) == [["client-3"], ["client-3"], ["client-3"], ["client-0"]]
    given = told(named(0.0, 1.0, 3.0, 10.0), sharing="farthest", received=3)
    assert [set(others) for others in given.values()] == [set(given) - {name} for name in given]


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_farthest_sharing_sends_no_own_style(n: int) -> None:
    vector = torch.tensor([0.1, 0.2, 0.3, 1000.3])
    for received in (1, n - 1):
        given = told(named(*[vector] * n), sharing="farthest", received=received)
        assert [name for name, others in given.items() if name in others] == []
        assert all(len(set(others)) == received for others in given.values())


def test_without_styles_the_model_comes_with_fit() -> None:
    for settings, clients in (({"received": 0}, 3), ({"style_learning": False}, 3), ({}, 1), ({"participants": 1}, 3)):
        server = stablefdg(**settings).server(federation(clients), seeded(0))
        ask = next(server)
        assert ask.verb == "fit"
        assert all([a.kind for a in message] == ["model_state"] for message in ask.messages.values())


def test_the_server_averages_without_weights() -> None:
    server = stablefdg(received=0).server(federation(3), seeded(0))
    first = next(server).messages["client-0"][0]
    assert isinstance(first, ModelState)
    changed: dict[str, Message] = {}
    for i, name in enumerate(federation(3).clients):
        state = {k: v + (3.0 * i if v.is_floating_point() else i) for k, v in first.state.items()}
        changed[name] = [ModelState(client=name, round=0, state=state)]
    second = server.send(changed).messages["client-0"][0]
    assert isinstance(second, ModelState)
    for name, value in second.state.items():
        moved = value - first.state[name]
        torch.testing.assert_close(
            moved, torch.full_like(moved, 3 if value.is_floating_point() else 1), rtol=0, atol=1e-5
        )


# Settings


def test_the_defaults_are_the_papers() -> None:
    method: Any = Method.named("stablefdg")()
    expected = {
        "rounds": 50, "participants": 10, "local_epochs": 5, "batch_size": 32, "lr": 1e-3, "momentum": 0.9,
        "weight_decay": 5e-4, "schedule": "cosine", "buffers": "share", "exploration": 3.0, "p": 0.5, "received": 1,
        "sharing": "random", "shift_select": "kmeans++", "oversample": "balanced", "oversample_size": None,
        "style_mode": "train", "resend_styles": True, "style_layer": "layer1", "explore_layers": ("layer1", "layer2", "layer3"),
        "attention": "mix", "attention_dim": 30, "qk_norm": True, "style_learning": True, "mixing": 0.1,
        "literal_shift": False, "center": "batch", "clamp_sigma": False, "code_compat": False,
        "image_changes": "flip_translate", "weights": "uniform",
    }  # fmt: skip
    assert asdict(method) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"exploration": 1.0}, {"p": 0.9}, {"shift_select": "random"}, {"oversample": "random"}, {"oversample_size": 0},
        {"style_layer": "layer2"}, {"explore_layers": STAGES}, {"mixing": 0.4}, {"literal_shift": True}, {"center": "concat"},
        {"clamp_sigma": True}, {"code_compat": True}, {"received": 3}, {"sharing": "farthest"}, {"attention": "self"},
        {"qk_norm": False},
    ],
    ids=str,
)  # fmt: skip
def test_an_option_changes_only_what_it_says(settings: Mapping[str, Any]) -> None:
    plain, other = (stablefdg(**chosen).client(federation(), held(), seeded(0)) for chosen in ({}, settings))
    before, after = asdict(plain.settings), asdict(other.settings)
    assert {name: after[name] for name in after if after[name] != before[name]} == settings
    same_shape = {name: value.shape for name, value in plain.model.state_dict().items()}
    if "code_compat" not in settings:
        assert same_shape == {name: value.shape for name, value in other.model.state_dict().items()}


@pytest.mark.parametrize(
    ("kind", "qk_norm", "dim"), [("mix", True, 5), ("cross", False, 3), ("self", True, 2), ("conv", True, 4)]
)
def test_the_highlighter_is_the_chosen_one(kind: str, qk_norm: bool, dim: int) -> None:
    made = stablefdg(attention=kind, qk_norm=qk_norm, attention_dim=dim).model(federation(), seeded(0)).highlighter
    assert (made.kind, made.qk_norm, made.query.weight.shape[0]) == (kind, qk_norm, dim)


def test_the_learning_rate_is_constant_as_released() -> None:
    released = stablefdg(rounds=50, lr=1e-3, schedule="cosine", code_compat=True)
    assert {released.lr_at(t) for t in range(50)} == {1e-3}


def test_styles_are_released_once_a_round_or_never() -> None:
    assert stablefdg(rounds=9).disclosure().releases("style_statistics") == 9
    for silent in (stablefdg(rounds=9, received=0), stablefdg(rounds=9, style_learning=False)):
        disclosed = silent.disclosure()
        assert (disclosed.releases("style_statistics"), disclosed.releases("model_state")) == (0, 9)


def test_attention_refuses_a_single_position() -> None:
    world = Federation(("client-0",), 3, 1, network, 0)
    with pytest.raises(ValueError, match="attention"):
        stablefdg().model(world, seeded(0))
    assert stablefdg(attention="off").model(world, seeded(0)) is not None


def test_an_imagenet_stem_is_refused_at_32_px() -> None:
    def build(rng: torch.Generator) -> Backbone:
        return backbone("resnet18", mean=(0.5,) * 3, std=(0.5,) * 3, rng=rng)

    with pytest.raises(ValueError, match="1 x 1 at 32 px"):
        stablefdg().model(Federation(("client-0",), 7, 32, build, 0), seeded(0))


# Training


Seen = list[tuple[Tensor, Tensor, Tensor]]


@pytest.fixture
def classified(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """(labels, ids, partner) of all rows that reach attention, forward by forward."""
    seen: Seen = []
    find: Callable[..., Tensor] = client_part.partners

    def noting(labels: Tensor, ids: Tensor, rng: torch.Generator) -> Tensor:
        chosen = find(labels, ids, rng)
        seen.append((labels, ids, chosen))
        return chosen

    monkeypatch.setattr(client_part, "partners", noting)
    return seen


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """(logits, labels) of all rows that the loss is taken of."""
    seen: list[tuple[Tensor, Tensor]] = []
    loss: Callable[..., Tensor] = nn.functional.cross_entropy

    def noting(logits: Tensor, labels: Tensor, *args: Any, **settings: Any) -> Tensor:
        assert (args, settings) == ((), {})
        seen.append((logits.detach(), labels))
        return loss(logits, labels)

    monkeypatch.setattr(nn.functional, "cross_entropy", noting)
    return seen


def fitted(
    method: Any, data: ClientData, styles: tuple[StyleStatistics, ...] = (), seed: int = 1
) -> tuple[Any, dict[str, Tensor]]:
    """A client after one fit in the second round, and the state that it shares."""
    client = method.client(federation(), data, seeded(seed))
    (answer,) = client.fit([ModelState.of(used_model(method), SERVER, 1), *styles])
    assert isinstance(answer, ModelState)
    assert (answer.client, answer.round) == (data.client, 1)
    return client, answer.state


@pytest.mark.parametrize(
    ("settings", "rows"), [({"p": 0.0}, 6), ({}, 12), ({"oversample_size": 3}, 9), ({"oversample_size": 0}, 6)]
)
def test_the_loss_is_of_batch_and_appended(
    settings: Mapping[str, Any], rows: int, judged: list[tuple[Tensor, Tensor]]
) -> None:
    labels = (0, 0, 0, 1, 1, 2)  # one image of class 2, and no other to ask: no extra row
    fitted(stablefdg(**({"p": 1.0} | dict(settings))), held(labels=labels))
    assert [tuple(logits.shape) for logits, _ in judged] == [(rows, 3)]
    assert judged[0][1][:6].bincount().tolist() == [3, 2, 1]
    if rows == 12:
        assert judged[0][1].bincount().tolist() == [4, 4, 4]


@pytest.mark.parametrize("attention", ["mix", "cross"])
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_a_lone_image_of_a_class_asks_another(
    attention: str, p: float, classified: Seen, judged: list[tuple[Tensor, Tensor]]
) -> None:
    labels = torch.tensor([0, 1, 2] * 3 + [0])
    data = held(n=10, labels=labels.tolist())
    fitted(stablefdg(attention=attention, p=p, batch_size=3, local_epochs=10), data)
    lonely = 0
    for (rows, ids, partner), (logits, judged_labels) in zip(classified, judged, strict=True):
        assert torch.equal(labels[ids], rows)
        assert torch.equal(rows[partner], rows)
        assert torch.equal(judged_labels, rows[: len(judged_labels)])  # extras answer nothing
        assert len(logits) == len(judged_labels)
        assert bool((ids[partner] != ids)[: len(judged_labels)].all())  # each class has other images to ask
        batch = set(ids[: len(judged_labels)].tolist())
        alone = [label for label in range(3) if len({i for i in batch if labels[i] == label}) == 1]
        extras = ids[len(judged_labels) :]
        assert sorted(labels[extras].tolist()) == alone
        assert not set(extras.tolist()) & batch
        lonely += len(alone)
    assert lonely > 0


def test_the_only_image_of_its_class_asks_itself(classified: Seen, judged: list[tuple[Tensor, Tensor]]) -> None:
    fitted(stablefdg(p=0.0), held(n=5, labels=(0, 0, 1, 2, 2)))
    ((labels, ids, partner),) = classified
    assert len(ids) == len(judged[0][0]) == 5
    row = int((labels == 1).nonzero())
    assert int(partner[row]) == row
    assert int((partner == torch.arange(5)).sum()) == 1


@pytest.mark.parametrize("attention", ["self", "conv", "off"])
def test_without_partners_no_other_image_is_fetched(attention: str, judged: list[tuple[Tensor, Tensor]]) -> None:
    seen: list[int] = []
    method = stablefdg(attention=attention, p=0.0, batch_size=3)
    client = method.client(federation(), held(n=6, labels=(0, 1, 2, 0, 1, 2)), seeded(1))
    client.model.backbone.register_forward_hook(lambda module, given, made: seen.append(len(made)))
    client.fit([ModelState.of(used_model(method), SERVER, 0)])
    assert seen == [3, 3]
    assert [len(logits) for logits, _ in judged] == [3, 3]


def test_all_off_is_fedavg_with_equal_weights() -> None:
    plain, data = stablefdg(attention="off", style_learning=False, local_epochs=4), held(n=8)
    fedavg: Any = Method.named("fedavg").configured(
        {"weights": "uniform", "local_epochs": 4, "lr": 0.1, "schedule": "constant"}
    )
    _, state = fitted(plain, data)
    (expected,) = fedavg.client(federation(), data, seeded(1)).fit([ModelState.of(used_model(plain), SERVER, 0)])
    assert set(state) == set(expected.state)
    for name, value in expected.state.items():
        torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)


def test_fit_trains_the_model_sent_for_styles() -> None:
    method, data = stablefdg(p=1.0, local_epochs=3, batch_size=4), held(n=6, flip=True, translate=0.25)
    state, received = ModelState.of(used_model(method), SERVER, 0), style("peer", 1.0)
    client = method.client(federation(), data, seeded(1))
    client.style([state])
    (after,) = client.fit([received])
    (at_once,) = method.client(federation(), data, seeded(1)).fit([state, received])
    assert all(torch.equal(at_once.state[name], value) for name, value in after.state.items())
    counters = {int(layer["num_batches_tracked"]) for layer in after.bn_statistics().values()}
    assert counters == {3 * 1}  # trained in train mode though styles were taken in evaluation


def test_each_round_has_its_learning_rate() -> None:
    method = stablefdg(p=0.0, rounds=4, schedule="cosine", attention="self", lr=0.01)
    start, data, moved = used_model(method), held(n=6), {}
    for round_ in (0, 1, 3):
        client = method.client(federation(), data, seeded(1))
        client.style([ModelState.of(start, SERVER, round_)])
        (answer,) = client.fit([style("peer", 1.0, round_)])
        assert answer.round == round_
        moved[round_] = answer.state["head.weight"] - start.head.weight.detach()
    for round_ in (1, 3):
        share = 0.5 * (1 + math.cos(math.pi * round_ / 4))
        torch.testing.assert_close(moved[round_], share * moved[0], rtol=1e-3, atol=1e-6)


def test_a_literal_shift_uses_the_own_style() -> None:
    data = held(n=8)
    received = StyleStatistics.build(
        style("peer", 1.0).tensors() | {"mean_var": torch.full((4,), 4.0)}, style("peer", 1.0).facts()
    )
    weights = []
    for literal in (False, True):
        method = stablefdg(p=1.0, explore_layers=(), attention="self", literal_shift=literal)
        client = method.client(federation(), data, seeded(1))
        client.style([ModelState.of(used_model(method), SERVER, 1)])
        weights.append(client.fit([received])[0].state["head.weight"])
    assert not torch.allclose(weights[0], weights[1], atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"literal_shift": True}, {"shift_select": "random"}], ids=str)
def test_a_received_style_matters(settings: Mapping[str, Any]) -> None:
    method, data = stablefdg(p=1.0, explore_layers=(), attention="self", **settings), held(n=8)
    _, without = fitted(method, data)
    _, near = fitted(method, data, (style("peer", 0.2),))
    _, far = fitted(method, data, (style("peer", 9.0),))
    weight = "head.weight"
    assert not torch.allclose(without[weight], near[weight], atol=1e-4)
    assert not torch.allclose(near[weight], far[weight], atol=1e-4)


@pytest.mark.parametrize(("mode", "applied"), [("train", False), ("eval", True)])
def test_first_styles_are_applied_in_eval_mode_only(mode: str, applied: bool) -> None:
    method, data = stablefdg(p=1.0, explore_layers=(), attention="self", style_mode=mode), held(n=8)
    weights = []
    for received in ((), (style("peer", 9.0),)):
        client = method.client(federation(), data, seeded(1))
        weights.append(client.fit([ModelState.of(used_model(method), SERVER, 0), *received])[0].state["head.weight"])
    assert torch.equal(*weights) is not applied


@pytest.mark.parametrize("settings", [{}, {"code_compat": True}], ids=str)
def test_taking_a_style_moves_no_statistic(settings: Mapping[str, Any]) -> None:
    """One round of two steps counts two batches, whatever else the images were passed for."""
    method = stablefdg(batch_size=20, **settings)
    client, _, model = asked_for_style(method, held(n=41))
    assert equal(model.state_dict(), client.model.state_dict())
    (answer,) = client.fit([style("peer", 1.0)])
    assert {int(layer["num_batches_tracked"]) for layer in answer.bn_statistics().values()} == {2}


@pytest.mark.parametrize(
    "settings",
    [
        {"explore_layers": STAGES}, {"style_layer": "layer2"}, {"center": "concat"}, {"clamp_sigma": True},
        {"oversample": "random"}, {"oversample_size": 0}, {"attention": "cross"}, {"attention": "conv"},
        {"attention": "off"}, {"qk_norm": False}, {"style_learning": False}, {"exploration": 0.5}, {"mixing": 1.0},
    ],
    ids=str,
)  # fmt: skip
def test_every_ablation_gives_another_model(settings: Mapping[str, Any]) -> None:
    labels = (0,) * 8 + (1,) * 3 + (2,) * 2
    _, plain = fitted(stablefdg(p=1.0), held(n=13, labels=labels), (style("peer", 1.0),))
    _, other = fitted(stablefdg(**{"p": 1.0} | dict(settings)), held(n=13, labels=labels), (style("peer", 1.0),))
    assert all(bool(torch.isfinite(value).all()) for value in other.values())
    first = "backbone.body.layer1.0.weight"
    assert not torch.equal(plain[first], other[first])


def test_the_share_of_negative_stds_is_logged() -> None:
    client, _ = fitted(stablefdg(p=1.0), held(n=12))
    total, count = client.log["negative_std_share"]
    assert count == 3  # at each of three layers of the only batch
    assert 0 <= total / count <= 1


def test_the_entropy_of_attention_is_logged() -> None:
    client, _ = fitted(stablefdg(qk_norm=False, p=0.0), held(n=12))
    assert [name for name in client.log if "entropy" in name], "qk_norm=False logs its entropy"


def test_the_released_code_trains_short_batches() -> None:
    method = stablefdg(code_compat=True, batch_size=20, p=1.0)  # its loader drops the last 5 of 25
    _, state = fitted(method, held(n=25), (style("peer", 1.0),))
    assert int(state["backbone.body.layer1.1.num_batches_tracked"]) >= 1


@pytest.mark.parametrize("released", [False, True])
def test_only_the_released_code_pairs_in_a_cycle(released: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a batch of one class each image attends to the next, and the last to the first."""
    seen: list[list[int]] = []
    method = stablefdg(code_compat=released, batch_size=20, p=0.0)
    client = method.client(federation(), held(n=20, labels=(1,) * 20), seeded(1))
    classify = client.model.classify
    monkeypatch.setattr(
        client.model, "classify", lambda z, partner: seen.append(partner.tolist()) or classify(z, partner)
    )
    client.fit([ModelState.of(used_model(method), SERVER, 0)])
    cycle = [*range(1, 20), 0]
    assert [partner == cycle for partner in seen] == [released] * len(seen)
    assert len(seen) == method.local_epochs


def test_an_unbiased_style_needs_positions() -> None:
    """It would be 0 / 0; with the paper's biased variance it is 0."""
    rng = torch.Generator().manual_seed(0)
    world = Federation(
        ("client-0", "client-1"),
        3,
        8,
        lambda rng: backbone("small_resnet", mean=(0.5,) * 3, std=(0.5,) * 3, rng=rng),
        0,
    )
    settings: dict[str, Any] = {"style_layer": "layer4", "explore_layers": ("layer1",), "attention": "off"}
    with pytest.raises(ValueError, match="want maps of more than one position, got 1 x 1 at layer4 of images of 8 px"):
        small("stablefdg", code_compat=True, **settings).model(world, rng)
    small("stablefdg", code_compat=False, **settings).model(world, rng)
    small("stablefdg", code_compat=True, **{**settings, "style_layer": "layer2"}).model(world, rng)


@pytest.mark.parametrize("resend", [False, True])
def test_a_relayed_style_is_of_the_relay_s_round(resend: bool, tmp_path: Path) -> None:
    """Clients share once (`resend_styles=False`) or each round; in each round each is sent one other's."""
    transcript = factories.run(stablefdg(rounds=3, resend_styles=resend, lr=1e-3), 6, 6, 6, build=network).transcript
    relays = [record for record in transcript.records if record.relayed]
    assert Counter(record.round for record in relays) == {0: 3, 1: 3, 2: 3}
    shared = Counter(r.round for r in transcript.records if r.kind == "style_statistics" and not r.relayed)
    assert shared == ({0: 3, 1: 3, 2: 3} if resend else {0: 3})
    for record, artifact in transcript.of_kind("style_statistics"):
        assert artifact is not None
        assert artifact.round == (record.round if resend or not record.relayed else 0)
    (row,) = [row for row in ledger(transcript.records, {}) if row.via == "server"]
    assert row.per_client_per_round_bytes == relays[0].nbytes
    transcript.save(tmp_path)
    assert Transcript.load(tmp_path).records == transcript.records
