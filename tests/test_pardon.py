"""PARDON as a whole: clients' styles and the style of all from plain loops, its losses, its options, what crosses."""

import math
import statistics
from collections import Counter
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import factories
import pytest
import torch
from conftest import Fitted
from factories import crossed, fitted_once, held, seeded, small, unit
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.moments import CLUSTERED, RULES, StyleRule, pooled_style
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import InterpolationStyle, StyleDraft, StyleStatistics
from fdgpriv.audit import main
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.defense import Defense
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.transcript import Transcript
from fdgpriv.models.style_codec import digits_codec
from fdgpriv.results.ledger import ledger
from fdgpriv.threat import threat
from fdgpriv.utils.finch import finch

losses: Any = import_module("fdgpriv.methods._contrastive")
blend: Any = import_module("fdgpriv.methods._interpolation")
transfers: Any = import_module("fdgpriv.methods._style_transfer")

ANGLES = (0, 2, 10, 13, 80, 83, 100, 104)  # FINCH: four pairs, then two fours
MEANS = (0.4, 0.5, 0.6)
BY_MAPS = RULES["finch_last_maps_mixture"]


network = factories.network(1, 1, means=MEANS)


pardon = partial(small, "pardon")


def federation(clients: int = 3, side: int = 8) -> Federation:
    return factories.federation(clients, build=network, side=side)


def run(method: Any, *sizes: int, **more: Any) -> tuple[nn.Module, Transcript]:
    """The model and the transcript of a federation whose clients hold so many images."""
    ran = factories.run(method, *sizes, build=network, out=0, **more)
    return ran.model, ran.transcript


def style(mean: Tensor, std: Tensor, client: str = "client-0") -> StyleStatistics:
    return factories.style(mean, std, client=client, at="stage3", rule=BY_MAPS.name)


def asked_for_style(method: Any, data: ClientData) -> tuple[Any, StyleStatistics]:
    client = method.client(federation(), data, seeded(1))
    (draft,) = client.style([])
    assert isinstance(draft, StyleDraft)
    return client, draft.finish()


def some_styles(n: int, channels: int = 5, seed: int = 0) -> list[StyleStatistics]:
    rng = seeded(seed)
    return [
        style(3 * torch.randn(channels, generator=rng), torch.rand(channels, generator=rng) + 0.1, f"client-{i}")
        for i in range(n)
    ]


# A client's style: Eq. 1-2


def by_hand(features: Tensor, rule: StyleRule) -> tuple[list[float], list[float]]:
    """Raw moments of each cluster by plain loops over its images and pixels, clusters weighing the same."""
    flat = features.double().flatten(2)
    own = torch.cat([flat.mean(2), flat.std(2, correction=0)], dim=1)
    rows = features.flatten(1) if rule.clustering.by_maps else own
    labels = finch(rows)[-1 if rule.clustering.coarsest else 0].tolist()
    means, stds = [], []
    for c in range(features.shape[1]):
        firsts, seconds = [], []
        for k in sorted(set(labels)):
            pixels = [float(v) for i in range(len(labels)) if labels[i] == k for v in flat[i, c]]
            firsts.append(math.fsum(pixels) / len(pixels))
            seconds.append(math.fsum(v * v for v in pixels) / len(pixels))
        mean = statistics.fmean(firsts)
        means.append(mean)
        if rule.name.endswith("mixture"):
            stds.append(math.sqrt(statistics.fmean(seconds) - mean * mean + 1e-5))
        else:
            stds.append(statistics.fmean(math.sqrt(q - m * m + 1e-5) for m, q in zip(firsts, seconds, strict=True)))
    return means, stds


@pytest.mark.parametrize("n", [1, 17])
@pytest.mark.parametrize("rule", CLUSTERED, ids=lambda rule: str(rule.name))
def test_a_client_s_style_is_a_loop_over_pixels(rule: StyleRule, n: int) -> None:
    _, partition, what, std = rule.name.split("_", 3)
    method = pardon(local_partition=partition, cluster_by=what, client_style=std)
    data = held(n=n, flip=True, translate=0.25)  # allowed in training, not here
    _, shared = asked_for_style(method, data)
    with torch.no_grad():
        mean, spread = by_hand(digits_codec().encode(data.images), rule)
    assert shared.mean.tolist() == pytest.approx(mean, abs=1e-5)
    assert shared.std.tolist() == pytest.approx(spread, rel=1e-4, abs=1e-5)
    assert (shared.client, shared.level, shared.layer, shared.rule) == ("client-0", "client", "stage3", rule.name)
    assert len(shared.mean_var) == 0
    assert shared.nbytes == 2 * 64 * 4


def test_without_clustering_a_style_is_pooled() -> None:
    _, shared = asked_for_style(pardon(local_clustering=False), held(n=20))
    with torch.no_grad():
        mean, std = pooled_style(digits_codec().encode(held(n=20).images))
    torch.testing.assert_close(shared.mean, mean)
    torch.testing.assert_close(shared.std, std)


@pytest.mark.parametrize("partition", ["first", "last"])
def test_the_partition_is_chosen(partition: str) -> None:
    mean = torch.tensor([1.0, 2, 4, 8, 16, 32, 64, 128])[:, None]
    found, _ = RULES[f"finch_{partition}_maps_mixture"].combine(mean, torch.ones(8, 1), unit(*ANGLES))
    assert float(found) == pytest.approx(statistics.fmean([1.5, 6, 24, 96] if partition == "first" else [15 / 4, 60]))


def test_clusters_by_maps_need_the_maps() -> None:
    mean, std = torch.zeros(4, 2), torch.ones(4, 2)
    for maps in (None, torch.empty(4, 0), torch.ones(3, 5)):
        with pytest.raises(ValueError, match=r"want the feature maps \(4, D\)"):
            BY_MAPS.combine(mean, std, maps)
    RULES["finch_last_styles_mixture"].combine(mean, std)


def test_only_the_released_code_augments_for_styles() -> None:
    data = held(n=9, flip=True, translate=0.25)
    client, first = asked_for_style(pardon(), data)
    draws = client.rng.get_state()
    assert torch.equal(client.style([])[0].finish().vector(), first.vector())
    assert torch.equal(client.rng.get_state(), draws)
    client, first = asked_for_style(pardon(code_compat=True), data)
    assert not torch.equal(client.style([])[0].finish().vector(), first.vector())


# The style of all: Eq. 3-5


def interpolated(styles: list[StyleStatistics], **how: bool) -> Tensor:
    found = blend.interpolation_style(styles, **how)
    return torch.cat([found.mean, found.std])


@pytest.mark.parametrize("midpoint", [False, True])
@pytest.mark.parametrize("coarsest", [False, True])
@pytest.mark.parametrize("n", [1, 4, 30])
def test_the_interpolation_style_is_a_median(n: int, coarsest: bool, midpoint: bool) -> None:
    styles = some_styles(n)
    rows = [[float(v) for v in one.vector()] for one in styles]
    labels = finch(torch.tensor(rows))[-1 if coarsest else 0].tolist()
    middle = statistics.median if midpoint else statistics.median_low
    expected = []
    for d in range(10):
        centres = [
            statistics.fmean(row[d] for row, label in zip(rows, labels, strict=True) if label == k)
            for k in sorted(set(labels))
        ]
        expected.append(middle(centres))
    found = interpolated(styles, coarsest=coarsest, midpoint=midpoint)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)
    mean = interpolated(styles, clustering=False)
    torch.testing.assert_close(mean, torch.tensor(rows).mean(0))


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"server_partition": "last"}, {"median": "midpoint"}, {"server_clustering": False},
        {"server_partition": "last", "median": "midpoint"},
    ],
    ids=str,
)  # fmt: skip
def test_the_server_sends_one_style_to_all(settings: dict[str, Any]) -> None:
    rows = unit(*ANGLES)
    world = federation(8)
    server = pardon(participants=2, **settings).server(world, seeded(0))
    ask = next(server)
    assert (ask.verb, dict(ask.messages)) == ("style", {client: [] for client in world.clients})
    ask = server.send({c: [style(row[:1], row[1:], c)] for c, row in zip(world.clients, rows, strict=True)})
    assert (ask.verb, tuple(ask.messages)) == ("adopt", world.clients)
    (found,) = {message[0] for message in ask.messages.values()}
    centres = rows.view(2, 4, 2).mean(1) if "server_partition" in settings else rows.view(4, 2, 2).mean(1)
    ordered = centres.sort(0).values
    lower = len(centres) // 2 - 1
    expected = (ordered[lower] + ordered[lower + 1]) / 2 if "median" in settings else ordered[lower]
    expected = rows.mean(0) if "server_clustering" in settings else expected
    torch.testing.assert_close(torch.cat([found.mean, found.std]), expected)
    assert (found.client, found.level, found.layer, found.rule) == (SERVER, "group", "stage3", BY_MAPS.name)


def test_two_clients_read_each_other_s_style() -> None:
    two = some_styles(2)
    read = 2 * interpolated(two).double() - two[0].vector().double()
    torch.testing.assert_close(read.float(), two[1].vector(), rtol=0, atol=1e-5)
    exact = [style(one.mean.double(), one.std.double()) for one in two]
    read = 2 * interpolated(exact) - exact[0].vector()
    assert float((read - exact[1].vector()).abs().max()) <= 1e-6 * float(exact[1].vector().abs().max())
    three = some_styles(3)
    others = (3 * interpolated(three) - three[0].vector()) / 2
    torch.testing.assert_close(others, (three[1].vector() + three[2].vector()) / 2, rtol=0, atol=1e-5)


# The losses: Eq. 7-9


@pytest.mark.parametrize("same_class", [False, True])
def test_positives_and_negatives_are_drawn_uniformly(same_class: bool) -> None:
    rng = seeded(4)
    own, styled = torch.randn(5, 3, generator=rng), torch.randn(5, 3, generator=rng)
    labels, margin = [0, 0, 1, 2, 1], 3.0  # a margin that no triplet meets, so that the mean is over all draws
    pool = [[float(v) / float(row.norm()) for v in row] for row in (*own, *styled)]
    expected = []
    for i in range(5):
        same = [j for j in range(10) if j != i and labels[j % 5] == labels[i]] if same_class else [i + 5]
        others = [j + 5 for j in range(5) if labels[j] != labels[i]]
        near = statistics.fmean(math.dist(pool[i], pool[j]) for j in same)
        far = statistics.fmean(math.dist(pool[i], pool[j]) for j in others)
        expected.append(near - far + margin)
    drawn = [float(losses.contrast(own, styled, torch.tensor(labels), margin, rng, same_class)[0]) for _ in range(800)]
    error = statistics.stdev(drawn) / math.sqrt(len(drawn))
    assert statistics.fmean(drawn) == pytest.approx(statistics.fmean(expected), abs=5 * error)
    assert error > 0


@pytest.mark.parametrize("n", [1, 4])
def test_a_batch_of_one_class_has_no_triplet(n: int) -> None:
    z = torch.randn(n, 3, generator=seeded(0), requires_grad=True)
    loss, skipped = losses.contrast(z, z, torch.full((n,), 2), 0.3, seeded(0))
    assert (float(loss), skipped) == (0.0, n)


def test_the_pull_is_a_mean_or_a_sum_of_squares() -> None:
    z = torch.tensor([[1.0, 2], [3, 4], [0, 1]])
    assert float(losses.embedding_penalty(z)) == pytest.approx(31 / 6)
    assert float(losses.embedding_penalty(z, summed=True)) == 31


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"contrastive_weight": 2.0, "regulariser_weight": 0.1, "margin": 1.0},
        {"contrastive": False},
        {"style_transfer": False},
        {"regulariser": "sum"},
    ],
    ids=str,
)
def test_a_client_s_loss_is_eq_9(settings: dict[str, Any]) -> None:
    method = pardon(**settings)
    data = held(n=2, labels=(0, 2))  # one negative each, so that nothing is drawn
    client = method.client(federation(), data, seeded(1))
    mean, std = torch.randn(64, generator=seeded(2)), torch.rand(64, generator=seeded(3))
    target = InterpolationStyle(client=SERVER, round=0, mean=mean, std=std, at="stage3", rule=BY_MAPS.name)
    if method.style_transfer:
        assert client.adopt([target]) == []
    client.model.eval()
    batch = import_module("fdgpriv.methods._federation").Batch(torch.arange(2), data.images, data.labels)
    with torch.no_grad():
        found = float(client.loss(batch))
        styled = digits_codec().stylise(data.images, mean, std, method.alpha)
        f, g = client.model.embedding(data.images), client.model.embedding(styled)
        log = client.model.head(f).log_softmax(1)
    expected = -(float(log[0, 0]) + float(log[1, 2])) / 2
    size = 1 if method.regulariser == "sum" else f.numel()
    expected += method.regulariser_weight * sum(float(v) ** 2 for v in f.flatten()) / size
    if method.style_transfer:
        expected += method.regulariser_weight * sum(float(v) ** 2 for v in g.flatten()) / size
        if method.contrastive:
            a, b = ([[float(v) / float(row.norm()) for v in row] for row in z] for z in (f, g))
            triplets = [max(0, math.dist(a[i], b[i]) - math.dist(a[i], b[1 - i]) + method.margin) for i in range(2)]
            expected += method.contrastive_weight * statistics.fmean(triplets)
    assert found == pytest.approx(expected, rel=1e-4)


# Stylised images: Eq. 6


def transfer(alpha: float = 0.5, released: bool = False) -> Any:
    return transfers.StyleTransfer(digits_codec(), alpha, (MEANS, (0.5,) * 3), released)


def test_with_alpha_0_the_style_is_not_used() -> None:
    images, codec = held(n=3).images, digits_codec()
    with torch.no_grad():
        for mean in (torch.zeros(64), torch.ones(64)):
            drawn = transfer(alpha=0.0).stylise(images, (mean, mean + 1))
            torch.testing.assert_close(drawn, codec.decode(codec.encode(images)).clamp(0, 1))


def test_stylised_images_are_decoded_adain() -> None:
    images, codec = held(n=2).images, digits_codec()
    mean, std = torch.randn(64, generator=seeded(1)), torch.rand(64, generator=seeded(2))
    with torch.no_grad():
        content = codec.encode(images).double()
        center = content.mean((2, 3), keepdim=True)
        spread = (content.var((2, 3), correction=1, keepdim=True) + 1e-5).sqrt()
        moved = std[:, None, None] * (content - center) / spread + mean[:, None, None]
        drawn = codec.decode((0.5 * moved + 0.5 * content).float()).clamp(0, 1)
        torch.testing.assert_close(transfer().stylise(images, (mean, std)), drawn, rtol=0, atol=1e-4)


def test_the_released_code_normalises_what_it_encodes() -> None:
    images, codec, made = held(n=2).images, digits_codec(), transfer(released=True)
    colour, scale = (torch.tensor(v)[:, None, None] for v in (MEANS, (0.5,) * 3))
    with torch.no_grad():
        fed = (images - colour) / scale
        content = codec.encode(fed)
        assert made.layers == ("stage1", "stage2", "stage3_linear")
        before = made.features(images, "stage3_linear")
        torch.testing.assert_close(nn.functional.leaky_relu(before, 0.2), content)
        assert not torch.allclose(before, content)
        drawn = transfer(alpha=0.0, released=True).stylise(images, (torch.zeros(64), torch.ones(64)))
        seen_by_the_classifier = (drawn - colour) / scale
        torch.testing.assert_close(seen_by_the_classifier, codec.decode(content), rtol=1e-4, atol=1e-4)


def test_layers_are_the_codec_s_stages() -> None:
    images, codec, made = held(n=2).images, digits_codec(), transfer()
    assert made.layers == ("stage1", "stage2", "stage3")
    with torch.no_grad():
        for layer, features in zip(made.layers, codec.stages(images), strict=True):
            torch.testing.assert_close(made.features(images, layer), features)
    with pytest.raises(ValueError, match="want a layer of stage1, stage2, stage3; got 'relu4_1'"):
        made.features(images, "relu4_1")


def test_images_are_stylised_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    images, style = torch.rand(7, 3, 16, 16, generator=seeded(2)), (torch.zeros(64), torch.ones(64))
    with torch.no_grad():
        whole = transfer().stylise(images, style)
        monkeypatch.setattr("fdgpriv.artifacts.moments._PIXELS", 3 * 16 * 16)
        one = transfer()
        sizes: list[int] = []
        seen = one.codec.encoder.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
        torch.testing.assert_close(one.stylise(images, style), whole)
        seen.remove()
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize("side", [8, 10, 13])
def test_stylised_images_keep_their_size(side: int) -> None:
    images = held(n=2, side=side).images
    with torch.no_grad():
        drawn = transfer().stylise(images, (torch.zeros(64), torch.ones(64)))
    assert drawn.shape == images.shape
    assert 0 <= float(drawn.min()) <= float(drawn.max()) <= 1


# What crosses


def test_styles_cross_once_and_are_not_relayed() -> None:
    _, transcript = run(pardon(participants=2, rounds=3), 3, 4, 5, 6)
    found = Counter((r.round, r.verb, r.kind, r.sender == SERVER) for r in transcript.records)
    expected: dict[tuple[int, str, str, bool], int] = {
        (0, "style", "style_statistics", False): 4,
        (0, "adopt", "interpolation_style", True): 4,
    }
    for round_ in range(3):
        expected[round_, "fit", "model_state", True] = 2
        expected[round_, "fit", "model_state", False] = 2
        expected[round_, "fit", "sample_count", False] = 2
    assert found == expected
    assert not any(record.relayed for record in transcript.records)
    assert len({artifact.tensors()["mean"].data_ptr() for artifact in crossed(transcript, InterpolationStyle)}) == 1
    shared = [replace(one) for one in crossed(transcript, StyleStatistics)]
    (found, *_) = crossed(transcript, InterpolationStyle)
    assert torch.equal(torch.cat([found.mean, found.std]), interpolated(shared))
    (record, *_) = [r for r in transcript.records if r.kind == "interpolation_style"]
    assert (record.level, record.layer, record.clients, record.samples) == ("group", "stage3", 4, 18)
    assert [(row.kind, row.visible_to) for row in ledger(transcript.records, {})][:2] == [
        ("style_statistics", ("server",)),
        ("interpolation_style", ("server", "client")),
    ]


def test_the_global_model_is_weighted_by_counts() -> None:
    model, transcript = run(pardon(rounds=1, optimizer="sgd"), 3, 9)
    counts = [int(artifact.count) for artifact in crossed(transcript, SampleCount)]
    assert counts == [3, 9]
    states = [state.state for state in crossed(transcript, ModelState) if state.client != SERVER]
    for name, value in model.state_dict().items():
        expected = (states[0][name].double() * 3 + states[1][name].double() * 9) / 12
        torch.testing.assert_close(value.double(), expected if value.is_floating_point() else expected.floor())


def test_without_style_transfer_models_cross() -> None:
    method = pardon(style_transfer=False)
    _, transcript = run(method, 4, 4)
    assert {record.kind for record in transcript.records} == {"model_state", "sample_count"}
    disclosed, full = method.disclosure(), pardon().disclosure()
    assert (disclosed.releases("style_statistics"), disclosed.style_rule) == (0, None)
    assert (full.releases("style_statistics"), full.releases("model_state")) == (1, 2)


OPTIONS = [
    {"optimizer": "sgd"}, {"contrastive": False}, {"style_transfer": False}, {"positives": "class"},
    {"regulariser": "sum"}, {"alpha": 0.2}, {"margin": 0.01}, {"code_compat": True}, {"buffers": "share"},
]  # fmt: skip


def trained(**settings: Any) -> Tensor:
    model, _ = run(pardon(rounds=1, **settings), 8, 8)
    return torch.cat([value.flatten().float() for value in model.state_dict().values()])


@pytest.fixture(scope="module")
def usual() -> Tensor:
    return trained()


@pytest.mark.parametrize("settings", OPTIONS, ids=str)
def test_every_option_changes_the_model_and_trains(settings: dict[str, Any], usual: Tensor) -> None:
    found = trained(**settings)
    assert bool(torch.isfinite(found).all())
    assert not torch.equal(found, usual)


# Who takes part


def test_one_client_s_style_comes_back_to_it() -> None:
    _, transcript = run(pardon(participants=20), 5)
    (shared,) = crossed(transcript, StyleStatistics)
    (found,) = crossed(transcript, InterpolationStyle)
    torch.testing.assert_close(torch.cat([found.mean, found.std]), shared.vector())


def test_a_client_of_one_class_trains() -> None:
    client = pardon().client(federation(1), held(n=5, labels=(0,) * 5), seeded(1))
    (draft,) = client.style([])
    client.adopt([blend.interpolation_style([draft.finish()])])
    sent = ModelState.of(pardon().model(federation(1), seeded(2)), SERVER, 0)
    state, count = client.fit([sent])
    assert client.log == {"anchors_without_negative": (5.0, 5)}
    assert int(count.count) == 5
    assert any(not torch.equal(value, state.state[name]) for name, value in sent.state.items())


# Settings


def test_small_images_and_missing_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"pardon\.codec: want images of at least 8 px for digits, got 7"):
        pardon().model(federation(side=7), seeded(0))
    method = pardon(codec="adain_vgg", codec_weights=tmp_path)
    with pytest.raises(ValueError, match="at least 16 px for adain_vgg, got 8"):
        method.model(federation(), seeded(0))
    with pytest.raises(FileNotFoundError, match=r"want vgg_normalised\.safetensors or"):
        method.check(method.model(federation(side=16), seeded(0)))


def test_the_weights_folder_reaches_the_codec(tmp_path: Path) -> None:
    config = AuditConfig(
        methods=("pardon", "fedavg"), preset="paper", dataset="digits", weights=tmp_path, device="cpu"
    ).checked()
    told: Any = config.method("pardon")
    assert (told.codec, told.codec_weights) == ("adain_vgg", tmp_path)
    assert str(tmp_path) not in str(config.as_config(3))
    own: Any = replace(config, settings={"codec_weights": "elsewhere"}, methods=("pardon",)).method("pardon")
    assert own.codec_weights == Path("elsewhere")


@pytest.mark.parametrize("method", ["pardon", "ccst"])
def test_the_adain_networks_are_used_if_there(method: str, tmp_path: Path) -> None:
    def codec(**given: Any) -> tuple[str, Path | None]:
        found: Any = AuditConfig(methods=(method,), dataset="pacs", weights=tmp_path, **given).method(method)
        return found.codec, found.codec_weights

    (tmp_path / "vgg_normalised.pth").touch()
    assert codec() == ("photo", tmp_path)
    (tmp_path / "decoder.safetensors").touch()
    assert codec() == ("adain_vgg", tmp_path)
    assert codec(settings={"codec": "photo"}) == ("photo", tmp_path)


# The evaluation, and the defense


@pytest.fixture(scope="module")
def audited(tiny: Dataset) -> Fitted:
    """PARDON after one round, two clients to a domain."""
    return fitted_once(tiny, clients=6, method="pardon")


def test_artifacts_of_any_group_are_simulated(audited: Fitted) -> None:
    evaluator = audited.evaluator()
    assert evaluator.layers() == ("stage1", "stage2", "stage3")
    adversaries = evaluator.style_adversaries(threat("server"), (1, 5, None))
    (adversary_trials,) = adversaries
    data = audited.population.clients
    clustered = 0
    for trial in [trial for trial in adversary_trials.trials if trial.client in data]:
        shared = trial.by_role["attack"][0].observation.artifact
        if trial.size is None:
            images = data[trial.client].images
            sent = [a for a in crossed(audited.transcript, StyleStatistics) if a.client == trial.client]
            assert torch.equal(shared.vector(), sent[0].vector())
        else:
            images = trial.truth.images
            assert len(images) == trial.size
        local = replace(data[trial.client], pixels=images, labels=torch.zeros(len(images), dtype=torch.int64))
        client: Any = audited.method.client(audited.federation, local, seeded(0))
        (draft,) = client.style([])
        torch.testing.assert_close(shared.vector(), draft.finish().vector(), rtol=1e-4, atol=1e-5)
        clustered += int(finch(draft.maps)[-1].max()) > 0
    assert clustered > 3
    adversary, domain = adversary_trials.adversary, adversary_trials.adversary.auxiliary[0]
    made = adversary.simulate(domain.images, domain.labels, torch.arange(9), seeded(0))
    assert isinstance(made, StyleStatistics)
    local = replace(data[next(iter(data))], pixels=domain.images[:9], labels=domain.labels[:9])
    mine: Any = audited.method.client(audited.federation, local, seeded(0))
    torch.testing.assert_close(made.vector(), mine.style([])[0].finish().vector(), rtol=1e-4, atol=1e-5)


def test_nobody_but_the_server_s_kind_reads_a_style(audited: Fitted) -> None:
    assert audited.evaluator().style_adversaries(threat("client"), (1,)) == []


def test_noise_is_for_clients_not_for_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method, told = pardon(), r"gaussian\.unit: want client for .*; got image"
    with pytest.raises(ValueError, match=told):
        Defense.parse("gaussian:unit=image").bound_to(method.disclosure())
    assert vars(Defense.parse("gaussian").bound_to(method.disclosure()))["unit"] == "client"
    client = method.client(federation(), held(n=12), seeded(1))
    (draft,) = client.style([])
    with pytest.raises(ValueError, match=told):
        Defense.parse("gaussian:unit=image").protect(draft, seeded(0))
    assert main(["--method", "pardon", "--defense", "gaussian:unit=image", "--out", str(tmp_path / "out")]) == 2
    assert "gaussian.unit: want client for pardon" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    defense: Any = Defense.parse("gaussian:unit=client,clip=0.5,epsilon=1e6").bound_to(method.disclosure())
    assert defense.releases == 1
    safe = defense.protect(draft, seeded(0))
    finished = defense.protect(draft.finish(), seeded(0))
    assert torch.equal(safe.vector(), finished.vector())
    whole = draft.finish().vector()
    clipped = whole * min(1, 0.5 / float(whole.norm()))
    torch.testing.assert_close(safe.vector(), clipped, rtol=0, atol=0.02)
    Defense.parse("gaussian:on=all").bound_to(pardon(style_transfer=False).disclosure())
    Defense.parse("gaussian").bound_to(pardon(local_clustering=False).disclosure())
