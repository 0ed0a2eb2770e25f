"""PARDON as a whole: clients' styles and the style of all from plain loops, its losses, its options, what crosses."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Fitted, fit
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, Artifact, ModelState, SampleCount, StyleDraft, StyleStatistics
from fdgpriv.audit import main
from fdgpriv.draws import drawing_from
from fdgpriv.engine.local import LocalEngine
from fdgpriv.federation import Dataset, Federation, LocalData
from fdgpriv.finch import finch
from fdgpriv.kinds import InterpolationStyle
from fdgpriv.ledger import ledger
from fdgpriv.models.backbone import Backbone
from fdgpriv.models.style_codec import digits_codec
from fdgpriv.plan import Plan
from fdgpriv.roles import Defense, Method
from fdgpriv.style import CLUSTERED, RULES, StyleRule, pooled_style
from fdgpriv.threat import threat
from fdgpriv.transcript import Transcript
from fdgpriv.wire import Wire

losses: Any = import_module("fdgpriv.methods._contrastive")
blend: Any = import_module("fdgpriv.methods._interpolation")
transfers: Any = import_module("fdgpriv.methods._transfer")

ANGLES = (0, 2, 10, 13, 80, 83, 100, 104)  # FINCH: four pairs, then two fours (METHODS 13.1)
BY_MAPS = RULES["finch_last_maps_mixture"]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(rng: torch.Generator) -> Backbone:
    """Four channels in two stages, with BatchNorm."""
    with drawing_from(rng):
        stages: dict[str, nn.Module] = {
            "layer1": nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
            "layer2": nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
        }
    return Backbone(stages, {"layer1": 4, "layer2": 4}, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))


def federation(clients: int = 3, seed: int = 0, side: int = 8) -> Federation:
    return Federation(tuple(f"client-{i}" for i in range(clients)), 3, side, network, seed)


def held(client: str = "client-0", n: int = 6, seed: int = 0, side: int = 8, **more: Any) -> LocalData:
    rng = seeded(100 + seed)
    tint = torch.rand(n, 3, 1, 1, generator=rng)  # styles that differ
    images = (0.5 * tint + 0.5 * torch.rand(n, 3, side, side, generator=rng)).clamp(0, 1)
    labels = more.pop("labels", torch.randint(3, (n,), generator=rng))
    return LocalData(client, images, labels, images[:0], labels[:0], 3, **more)


def pardon(**settings: Any) -> Any:
    small = {"rounds": 2, "participants": None, "local_epochs": 1, "batch_size": 8, "lr": 0.01}
    return Method.named("pardon").configured(small | settings)


def run(method: Any, *sizes: int, seed: int = 0, workers: int = 2, **more: Any) -> tuple[nn.Module, Transcript]:
    """The model and the transcript of a federation whose clients hold so many images."""
    world = federation(len(sizes), seed)
    data = {name: held(name, n, i, **more) for i, (name, n) in enumerate(zip(world.clients, sizes, strict=True))}
    wire = Wire({name: len(part) for name, part in data.items()}, Defense.named("none")(), Transcript("all"))
    return LocalEngine(workers).run(method, world, data, wire), wire.transcript


def asked_for_style(method: Any, data: LocalData) -> tuple[Any, StyleStatistics]:
    client = method.client(federation(), data, seeded(1))
    (draft,) = client.style([])
    assert isinstance(draft, StyleDraft)
    return client, draft.finish()


def style(mean: Tensor, std: Tensor, client: str = "client-0") -> StyleStatistics:
    nothing = torch.empty(0)
    return StyleStatistics(
        client=client, round=0, mean=mean, std=std, mean_var=nothing, std_var=nothing, behind="client",
        at="stage3", rule=BY_MAPS.name,
    )  # fmt: skip


def some_styles(n: int, channels: int = 5, seed: int = 0) -> list[StyleStatistics]:
    rng = seeded(seed)
    return [
        style(3 * torch.randn(channels, generator=rng), torch.rand(channels, generator=rng) + 0.1, f"client-{i}")
        for i in range(n)
    ]


def unit(*degrees: float) -> Tensor:
    radians = torch.tensor(degrees) * math.pi / 180
    return torch.stack([radians.cos(), radians.sin()], dim=1)


# A client's style: Eq. 1-2 and METHODS 8c.1-3


def by_hand(features: Tensor, rule: StyleRule) -> tuple[list[float], list[float]]:
    """Raw moments of each cluster by plain loops over its images and pixels, clusters weighing the same."""
    assert rule.clustering is not None
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


@pytest.mark.parametrize("n", [1, 4, 17])
@pytest.mark.parametrize("rule", CLUSTERED, ids=lambda rule: str(rule.name))
def test_a_client_s_style_is_a_loop_over_clusters_images_and_pixels(rule: StyleRule, n: int) -> None:
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


@pytest.mark.parametrize("n", [1, 2, 3])
def test_one_cluster_has_the_pooled_style_of_all_images(n: int) -> None:
    data = held(n=n)
    with torch.no_grad():
        mean, std = pooled_style(digits_codec().encode(data.images))
    for rule in CLUSTERED:
        _, partition, what, how = rule.name.split("_", 3)
        _, shared = asked_for_style(pardon(local_partition=partition, cluster_by=what, client_style=how), data)
        torch.testing.assert_close(shared.mean, mean)
        torch.testing.assert_close(shared.std, std)
    _, shared = asked_for_style(pardon(local_clustering=False), held(n=20))
    with torch.no_grad():
        mean, std = pooled_style(digits_codec().encode(held(n=20).images))
    torch.testing.assert_close(shared.mean, mean)
    torch.testing.assert_close(shared.std, std)


def test_two_clusters_of_different_size_weigh_half_each() -> None:
    maps = torch.tensor([[1, 0.0], [1, 0.01], [1, 0.02], [1, 0.03], [1, 0.04], [0.0, 1], [0.01, 1]])
    mean = torch.tensor([1.0, 1, 1, 1, 1, 5, 5])[:, None]
    std = torch.tensor([2.0, 2, 2, 2, 2, 4, 4])[:, None]
    found, spread = RULES["finch_last_maps_mixture"].together(mean, std, maps)
    assert float(found) == pytest.approx(3.0)  # and not 15 / 7
    assert float(spread) == pytest.approx(math.sqrt((4 + 16) / 2 + 4 + 1e-5))
    _, spread = RULES["finch_last_maps_mean_of_std"].together(mean, std, maps)
    assert float(spread) == pytest.approx((math.sqrt(4 + 1e-5) + math.sqrt(16 + 1e-5)) / 2)
    _, plain = RULES["pooled_biased"].together(mean, std)
    assert abs(float(plain) - float(spread)) > 0.1


@pytest.mark.parametrize("partition", ["first", "last"])
def test_the_partition_is_chosen(partition: str) -> None:
    mean = torch.tensor([1.0, 2, 4, 8, 16, 32, 64, 128])[:, None]
    found, _ = RULES[f"finch_{partition}_maps_mixture"].together(mean, torch.ones(8, 1), unit(*ANGLES))
    pairs = [1.5, 6, 24, 96]
    fours = [15 / 4, 60]
    assert float(found) == pytest.approx(statistics.fmean(pairs if partition == "first" else fours))


def test_clusters_by_maps_cannot_be_had_without_the_maps() -> None:
    mean, std = torch.zeros(4, 2), torch.ones(4, 2)
    for maps in (None, torch.empty(4, 0), torch.ones(3, 5)):
        with pytest.raises(ValueError, match=r"want the feature maps \(4, D\)"):
            BY_MAPS.together(mean, std, maps)
    RULES["finch_last_styles_mixture"].together(mean, std)


def test_asking_for_the_style_draws_nothing_and_the_released_code_augments() -> None:
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
@pytest.mark.parametrize("n", [1, 2, 4, 9, 30])
def test_the_interpolation_style_is_the_median_of_cluster_means(n: int, coarsest: bool, midpoint: bool) -> None:
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


def test_the_median_of_an_even_number_is_the_lower_middle_value_or_the_midpoint() -> None:
    four, two = torch.tensor([[1.0], [10], [3], [2]]), torch.tensor([[9.0], [5]])
    assert [float(blend.middle(centres, False)) for centres in (four, two)] == [2, 5]
    assert [float(blend.middle(centres, True)) for centres in (four, two)] == [2.5, 7]


def test_the_server_takes_the_finest_partition_unless_told_otherwise() -> None:
    styles = [style(row[:1], row[1:]) for row in unit(*ANGLES)]
    rows = unit(*ANGLES)
    pairs, fours = rows.view(4, 2, 2).mean(1), rows.view(2, 4, 2).mean(1)
    torch.testing.assert_close(interpolated(styles), pairs.sort(0).values[1])
    torch.testing.assert_close(interpolated(styles, coarsest=True), fours.sort(0).values[0])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"server_partition": "last"},
        {"median": "midpoint"},
        {"server_partition": "last", "median": "midpoint"},
        {"server_clustering": False},
    ],
    ids=str,
)
def test_the_server_sends_everyone_the_style_that_its_settings_ask_for(settings: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("n", [9, 20, 31])
def test_an_odd_number_of_clusters_shows_coordinates_of_cluster_means(n: int) -> None:
    odd = 0
    for seed in range(12):
        styles = some_styles(n, seed=seed)
        rows = torch.stack([one.vector() for one in styles])
        labels = finch(rows)[0]
        centres = torch.stack([rows[labels == k].double().mean(0) for k in range(int(labels.max()) + 1)]).float()
        if len(centres) % 2:
            odd += 1
            assert bool((centres == interpolated(styles)).any(0).all())
    assert odd


def test_the_order_of_clients_does_not_matter_and_equal_ones_share_their_style() -> None:
    styles = some_styles(15)
    torch.testing.assert_close(interpolated(styles), interpolated(styles[::-1]))
    one = styles[0]
    torch.testing.assert_close(interpolated([one] * 6), one.vector())


def test_one_outlying_cluster_moves_no_coordinate_past_its_neighbours() -> None:
    centres = torch.randn(7, 40, generator=seeded(3))
    ordered = centres.sort(0).values
    for k, far in product(range(7), (1e9, -1e9)):
        moved = centres.clone()
        moved[k] = far
        found = blend.middle(moved, False)
        assert bool(((found >= ordered[2]) & (found <= ordered[4])).all())


def test_of_two_clients_each_reads_the_other_s_style_and_of_three_the_others_mean() -> None:
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


def test_a_triplet_by_hand() -> None:
    own, other = torch.tensor([[2.0, 0], [2.0, 0]]), torch.tensor([[0.0, 5], [0.0, 5]])
    labels = torch.tensor([0, 1])
    # each anchor's positive is its own copy, its only negative the other's: (a = p, n orthogonal) and (a = n, p orthogonal)
    near = torch.stack([own[0], other[0]])
    loss, skipped = losses.contrast(near, near, labels, 0.3, seeded(0))
    assert (float(loss), skipped) == (0.0, 0)
    loss, _ = losses.contrast(near, near.flip(0), labels, 0.3, seeded(0))
    assert float(loss) == pytest.approx(math.sqrt(2) + 0.3, abs=1e-5)


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
    assert float(losses.pull(z)) == pytest.approx(31 / 6)
    assert float(losses.pull(z, summed=True)) == 31


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
    data = held(n=2, labels=torch.tensor([0, 2]))  # one negative each, so that nothing is drawn
    client = method.client(federation(), data, seeded(1))
    mean, std = torch.randn(64, generator=seeded(2)), torch.rand(64, generator=seeded(3))
    target = InterpolationStyle(client=SERVER, round=0, mean=mean, std=std, at="stage3", rule=BY_MAPS.name)
    if method.style_transfer:
        assert client.adopt([target]) == []
    client.model.eval()
    batch = import_module("fdgpriv.methods._federation").Batch(torch.arange(2), data.images, data.labels)
    with torch.no_grad():
        found = float(client._loss(batch))
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
    return transfers.StyleTransfer(digits_codec(), alpha, ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)), released)


def test_with_alpha_0_the_style_is_not_used() -> None:
    images, codec = held(n=3).images, digits_codec()
    with torch.no_grad():
        for mean in (torch.zeros(64), torch.ones(64)):
            drawn = transfer(alpha=0.0).stylise(images, (mean, mean + 1))
            torch.testing.assert_close(drawn, codec.decode(codec.encode(images)).clamp(0, 1))


def test_stylised_images_are_adain_half_way_and_decoded() -> None:
    images, codec = held(n=2).images, digits_codec()
    mean, std = torch.randn(64, generator=seeded(1)), torch.rand(64, generator=seeded(2))
    with torch.no_grad():
        content = codec.encode(images).double()
        center = content.mean((2, 3), keepdim=True)
        spread = (content.var((2, 3), correction=1, keepdim=True) + 1e-5).sqrt()
        moved = std[:, None, None] * (content - center) / spread + mean[:, None, None]
        drawn = codec.decode((0.5 * moved + 0.5 * content).float()).clamp(0, 1)
        torch.testing.assert_close(transfer().stylise(images, (mean, std)), drawn, rtol=0, atol=1e-4)


def test_the_released_code_normalises_what_it_encodes_and_not_what_it_classifies() -> None:
    images, codec, made = held(n=2).images, digits_codec(), transfer(released=True)
    colour, scale = (torch.tensor(v)[:, None, None] for v in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)))
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


def test_layers_are_the_codec_s_stages_and_styles_are_shared_at_the_last() -> None:
    images, codec, made = held(n=2).images, digits_codec(), transfer()
    assert made.layers == ("stage1", "stage2", "stage3")
    with torch.no_grad():
        for layer, features in zip(made.layers, codec.stages(images), strict=True):
            torch.testing.assert_close(made.features(images, layer), features)
    with pytest.raises(ValueError, match="want a layer of stage1, stage2, stage3; got 'relu4_1'"):
        made.features(images, "relu4_1")


def test_images_are_redrawn_in_parts_that_fit_in_memory_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    images, style = torch.rand(7, 3, 16, 16, generator=seeded(2)), (torch.zeros(64), torch.ones(64))
    with torch.no_grad():
        whole = transfer().stylise(images, style)
        monkeypatch.setattr("fdgpriv.style._PIXELS", 3 * 16 * 16)
        one = transfer()
        sizes: list[int] = []
        seen = one.codec.encoder.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
        torch.testing.assert_close(one.stylise(images, style), whole)
        seen.remove()
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize("side", [8, 10, 13])
def test_stylised_images_have_the_size_of_the_images(side: int) -> None:
    images = held(n=2, side=side).images
    with torch.no_grad():
        drawn = transfer().stylise(images, (torch.zeros(64), torch.ones(64)))
    assert drawn.shape == images.shape
    assert 0 <= float(drawn.min()) <= float(drawn.max()) <= 1


# What crosses


def artifacts(transcript: Transcript, kind: type[Artifact]) -> Iterator[Any]:
    for _, artifact in transcript.of_kind(kind.kind):
        assert isinstance(artifact, kind)
        yield artifact


def test_styles_cross_once_the_style_of_all_comes_down_once_and_nothing_is_passed_on() -> None:
    _, transcript = run(pardon(participants=2, rounds=3), 3, 4, 5, 6)
    crossed = Counter((r.round, r.verb, r.kind, r.sender == SERVER) for r in transcript.records)
    expected: dict[tuple[int, str, str, bool], int] = {
        (0, "style", "style_statistics", False): 4,
        (0, "adopt", "interpolation_style", True): 4,
    }
    for round_ in range(3):
        expected[round_, "fit", "model_state", True] = 2
        expected[round_, "fit", "model_state", False] = 2
        expected[round_, "fit", "sample_count", False] = 2
    assert crossed == expected
    assert not any(record.relayed for record in transcript.records)
    assert len({artifact.tensors()["mean"].data_ptr() for artifact in artifacts(transcript, InterpolationStyle)}) == 1
    shared = [replace(one) for one in artifacts(transcript, StyleStatistics)]
    (found, *_) = artifacts(transcript, InterpolationStyle)
    assert torch.equal(torch.cat([found.mean, found.std]), interpolated(shared))
    (record, *_) = [r for r in transcript.records if r.kind == "interpolation_style"]
    assert (record.level, record.layer, record.clients, record.samples) == ("group", "stage3", 4, 18)
    assert [(row.kind, row.visible_to) for row in ledger(transcript.records)][:2] == [
        ("style_statistics", ("server",)),
        ("interpolation_style", ("server", "client")),
    ]


def test_the_global_model_is_the_mean_weighted_by_counts() -> None:
    model, transcript = run(pardon(rounds=1, optimizer="sgd"), 3, 9)
    counts = [int(artifact.count) for artifact in artifacts(transcript, SampleCount)]
    assert counts == [3, 9]
    states = [state.state for state in artifacts(transcript, ModelState) if state.client != SERVER]
    for name, value in model.state_dict().items():
        expected = (states[0][name].double() * 3 + states[1][name].double() * 9) / 12
        torch.testing.assert_close(value.double(), expected if value.is_floating_point() else expected.floor())


@pytest.mark.parametrize(("buffers", "kept"), [("freeze", True), ("share", False)])
def test_batch_norm_is_frozen_to_the_bit(buffers: str, kept: bool) -> None:
    _, transcript = run(pardon(buffers=buffers), 6, 6)
    first, *rest = [state.bn_statistics() for state in artifacts(transcript, ModelState)]
    after = [state[layer][leaf] for state in rest[-1:] for layer in first for leaf in first[layer]]
    before = [first[layer][leaf] for layer in first for leaf in first[layer]]
    assert len(before) == 6
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)) is kept


def test_without_style_transfer_only_models_and_counts_cross() -> None:
    method = pardon(style_transfer=False)
    _, transcript = run(method, 4, 4)
    assert {record.kind for record in transcript.records} == {"model_state", "sample_count"}
    assert method.releases("style_statistics") == 0
    assert method.style_rule() is None
    assert (pardon().releases("style_statistics"), pardon().releases("model_state")) == (1, 2)


OPTIONS = [
    {"optimizer": "sgd"},
    {"contrastive": False},
    {"style_transfer": False},
    {"positives": "class"},
    {"regulariser": "sum"},
    {"alpha": 0.2},
    {"margin": 0.01},
    {"code_compat": True},
    {"buffers": "share"},
]


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


def test_the_same_seed_gives_the_same_transcript_however_many_work() -> None:
    def tensors(workers: int, seed: int = 0) -> list[Tensor]:
        _, transcript = run(pardon(participants=2), 5, 3, 7, workers=workers, seed=seed, flip=True, translate=0.25)
        return [tensor for artifact in transcript.kept.values() for tensor in artifact.tensors().values()]

    once = tensors(1)
    assert all(torch.equal(a, b) for a, b in zip(once, tensors(2), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(once, tensors(1, seed=1), strict=True))


# Who takes part


@pytest.mark.parametrize("sizes", [(5,), (1,), (1, 1), (1, 2, 20), (3, 3, 3)], ids=str)
def test_few_clients_and_few_images_work(sizes: tuple[int, ...]) -> None:
    model, transcript = run(pardon(participants=20), *sizes)
    assert all(bool(torch.isfinite(value).all()) for value in model.state_dict().values())
    assert sum(record.kind == "style_statistics" for record in transcript.records) == len(sizes)
    if len(sizes) == 1:
        (shared,) = artifacts(transcript, StyleStatistics)
        (found,) = artifacts(transcript, InterpolationStyle)
        torch.testing.assert_close(torch.cat([found.mean, found.std]), shared.vector())


def test_a_client_of_one_class_trains_and_tells_that_its_anchors_had_no_negative() -> None:
    client = pardon().client(federation(1), held(n=5, labels=torch.zeros(5, dtype=torch.int64)), seeded(1))
    (draft,) = client.style([])
    client.adopt([blend.interpolation_style([draft.finish()])])
    sent = ModelState.of(pardon().model(federation(1), seeded(2)), SERVER, 0)
    state, count = client.fit([sent])
    assert client.log == {"anchors_without_negative": (5.0, 5)}
    assert int(count.count) == 5
    assert any(not torch.equal(value, state.state[name]) for name, value in sent.state.items())


# Settings


def test_the_defaults_are_the_paper_s_and_the_released_code_s() -> None:
    part = Method.named("pardon")
    paper: Any = part.configured(part.presets["paper"])
    assert (paper.rounds, paper.participants, paper.local_epochs, paper.batch_size) == (50, 20, 1, 32)
    assert (paper.contrastive_weight, paper.regulariser_weight, paper.margin, paper.alpha) == (0.75, 0.2, 0.3, 0.5)
    assert (paper.local_partition, paper.server_partition, paper.cluster_by) == ("last", "first", "maps")
    assert (paper.client_style, paper.median, paper.buffers, paper.codec) == (
        "mixture",
        "lower",
        "freeze",
        "adain_vgg",
    )
    optimizer = paper.new_optimizer(nn.Linear(2, 2), 49)
    assert type(optimizer) is torch.optim.Adam
    assert {k: optimizer.defaults[k] for k in ("lr", "eps", "weight_decay")} == {
        "lr": 3e-5,
        "eps": 1e-8,
        "weight_decay": 0,
    }
    assert type(pardon(optimizer="sgd").new_optimizer(nn.Linear(2, 2), 0)) is torch.optim.SGD


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("median=mean", r"pardon\.median: want one of lower, midpoint; got 'mean'"),
        ("optimizer=lbfgs", r"pardon\.optimizer: want one of adam, sgd; got"),
        ("cluster_by=colour", r"pardon\.cluster_by: want one of maps, styles; got"),
        ("local_partition=2", r"pardon\.local_partition: want one of"),
        ("server_partition=all", r"pardon\.server_partition: want one of"),
        ("client_style=max", r"pardon\.client_style: want one of"),
        ("positives=any", r"pardon\.positives: want one of"),
        ("regulariser=l1", r"pardon\.regulariser: want one of"),
        ("codec=jpeg", r"pardon\.codec: want one of digits, adain_vgg; got 'jpeg'"),
        ("alpha=1.5", r"pardon\.alpha: want a number in \[0, 1\], got 1.5"),
        ("alpha=nan", r"pardon\.alpha: want"),
        ("margin=-1", r"pardon\.margin: want more than 0 and finite, got -1"),
        ("margin=0", r"pardon\.margin: want more than 0"),
        ("contrastive_weight=-0.1", r"pardon\.contrastive_weight: want"),
        ("regulariser_weight=inf", r"pardon\.regulariser_weight: want"),
        ("rounds=0", r"pardon\.rounds: want more than 0"),
        ("participants=0", r"pardon\.participants: want at least 1"),
        ("buffers=lose", r"pardon\.buffers: want one of"),
        ("contrastive=perhaps", r"pardon\.contrastive: want bool"),
    ],
)
def test_a_bad_setting_is_told_in_one_line(settings: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        Method.parse(f"pardon:{settings}")
    assert len(str(caught.value).splitlines()) == 1


def test_images_too_small_for_the_codec_and_missing_weights_are_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"pardon\.codec: want images of at least 8 px for digits, got 7"):
        pardon().model(federation(side=7), seeded(0))
    method = pardon(codec="adain_vgg", codec_weights=tmp_path)
    with pytest.raises(ValueError, match="at least 16 px for adain_vgg, got 8"):
        method.model(federation(), seeded(0))
    with pytest.raises(FileNotFoundError, match=r"want vgg_normalised\.safetensors or"):
        method.check(method.model(federation(side=16), seeded(0)))


def test_the_folder_of_weights_reaches_the_codec_and_no_result_names_it(tmp_path: Path) -> None:
    plan = Plan(
        methods=("pardon", "fedavg"), preset="paper", dataset="digits", weights=tmp_path, device="cpu"
    ).checked()
    told: Any = plan.method("pardon")
    assert (told.codec, told.codec_weights) == ("adain_vgg", tmp_path)
    assert str(tmp_path) not in str(plan.as_config(3))
    own: Any = replace(plan, settings={"codec_weights": "elsewhere"}, methods=("pardon",)).method("pardon")
    assert own.codec_weights == Path("elsewhere")


def test_a_run_is_read_back_from_disk(tmp_path: Path) -> None:
    _, transcript = run(pardon(), 3, 4)
    transcript.save(tmp_path)
    (again, *_) = artifacts(Transcript.load(tmp_path), InterpolationStyle)
    (first, *_) = artifacts(transcript, InterpolationStyle)
    assert again.facts() == first.facts()
    assert torch.equal(again.mean, first.mean)


# The examination, and the defense


@pytest.fixture(scope="module")
def audited(tiny: Dataset) -> Fitted:
    """PARDON after one round, two clients to a domain."""
    return fit(tiny, clients=6, method="pardon")


def test_the_examination_makes_the_artifact_of_any_group_of_images(audited: Fitted) -> None:
    proctor = audited.proctor()
    assert proctor.layers() == ("stage1", "stage2", "stage3")
    sittings = proctor.style_sittings(threat("server"), (1, 5, None), reconstruction=False)
    (sitting,) = sittings
    data = audited.population.clients
    clustered = 0
    for item in [item for item in sitting.items if item.client in data]:
        shared = item.asked["attack"][0].question.artifact
        if item.size is None:
            images = data[item.client].images
            sent = [a for a in artifacts(audited.transcript, StyleStatistics) if a.client == item.client]
            assert torch.equal(shared.vector(), sent[0].vector())
        else:
            images = item.truth.images
            assert len(images) == item.size
        local = replace(data[item.client], images=images, labels=torch.zeros(len(images), dtype=torch.int64))
        client: Any = audited.method.client(audited.federation, local, seeded(0))
        (draft,) = client.style([])
        torch.testing.assert_close(shared.vector(), draft.finish().vector(), rtol=1e-4, atol=1e-5)
        clustered += int(finch(draft.maps)[-1].max()) > 0
    assert clustered > 3
    view, domain = sitting.view, sitting.view.auxiliary[0]
    made = view.make(domain.images, domain.labels, torch.arange(9), seeded(0))
    assert isinstance(made, StyleStatistics)
    local = replace(data[next(iter(data))], images=domain.images[:9], labels=domain.labels[:9])
    mine: Any = audited.method.client(audited.federation, local, seeded(0))
    torch.testing.assert_close(made.vector(), mine.style([])[0].finish().vector(), rtol=1e-4, atol=1e-5)


def test_nobody_but_the_server_s_kind_reads_a_style(audited: Fitted) -> None:
    assert audited.proctor().style_sittings(threat("client"), (1,), reconstruction=False) == []


def test_noise_scaled_to_plain_averages_is_refused_and_that_of_a_whole_client_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method, told = pardon(), r"gaussian\.unit: want client for .*; got image"
    with pytest.raises(ValueError, match=told):
        Defense.parse("gaussian").bound_to(method)
    client = method.client(federation(), held(n=12), seeded(1))
    (draft,) = client.style([])
    with pytest.raises(ValueError, match=told):
        Defense.parse("gaussian").protect(draft, seeded(0))
    assert main(["--method", "pardon", "--defense", "gaussian", "--out", str(tmp_path / "out")]) == 2
    assert "gaussian.unit: want client for pardon" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    defense: Any = Defense.parse("gaussian:unit=client,clip=0.5,epsilon=1e6").bound_to(method)
    assert defense.releases == 1
    safe = defense.protect(draft, seeded(0))
    finished = defense.protect(draft.finish(), seeded(0))
    assert torch.equal(safe.vector(), finished.vector())
    whole = draft.finish().vector()
    clipped = whole * min(1, 0.5 / float(whole.norm()))
    torch.testing.assert_close(safe.vector(), clipped, rtol=0, atol=0.02)
    Defense.parse("gaussian").bound_to(pardon(style_transfer=False))
    Defense.parse("gaussian").bound_to(pardon(local_clustering=False))
