"""CCST: styles from plain loops, who is told of them, which copy takes which, what each option changes, bytes on the wire."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import factories
import numpy as np
import pytest
import torch
from conftest import Fitted
from factories import SURE, equal, federation, finite, fitted_once, held, network, refused, seeded, small
from factories_wire import up as over_wire
from safetensors.torch import save_file
from scipy import stats
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import PEER, SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import ValidationMetrics
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleStatistics
from fdgpriv.audit import main
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.defense import Defense
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.models.adain_vgg import decoder_layers, encoder_layers
from fdgpriv.models.style_codec import StyleCodec, digits_codec
from fdgpriv.results.ledger import ledger
from fdgpriv.simulation.recorded_styles import RecordedStyles
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.tasks.images import Images
from fdgpriv.threat import threat
from fdgpriv.utils.global_rng import drawing_from

part: Any = import_module("fdgpriv.methods.ccst")
taken: Any = import_module("fdgpriv.methods._style_transfer")
stored: Any = import_module("fdgpriv.methods._ccst_bank")
ccst = partial(small, "ccst")

CPU = torch.device("cpu")
PACS = {"photo": (1670, 53), "art": (2048, 64), "cartoon": (2344, 74), "sketch": (3929, 123)}  # images, ceil(n / 32)


def run(method: Any, sizes: tuple[int, ...] = (5, 4, 3), **more: Any) -> tuple[dict[str, Tensor], Transcript]:
    ran = factories.run(method, *sizes, **more)
    return ran.state, ran.transcript


def style(client: str, value: float, size: int = 64) -> StyleStatistics:
    mean = torch.full((size,), value)
    return factories.style(mean, mean.abs() + 0.1, client=client, at="stage3", rule="pooled_biased")


def shared(method: Any, data: ClientData) -> list[Artifact]:
    """What an undefended client answers to ``style``."""
    outgoing = method.client(federation(), data, seeded(1)).style([])
    undefended = Defense.named("none")()
    return [undefended.shared(item, seeded(0)) for item in outgoing]


@pytest.fixture(scope="module")
def vgg() -> StyleCodec:
    """AdaIN's networks with random weights."""
    with drawing_from(seeded(0)):
        return StyleCodec("adain-vgg", encoder_layers(), decoder_layers(), (4, 11, 18, 31)).requires_grad_(False)


def pooled(features: Tensor) -> tuple[list[float], list[float]]:
    """Mean and std of each channel over all images and pixels of features (N, C, h, w), in float64 by numpy."""
    rows = features.double().numpy().transpose(1, 0, 2, 3).reshape(features.shape[1], -1)
    return [float(row.mean()) for row in rows], [math.sqrt(float(row.var()) + 1e-5) for row in rows]


# The styles that are shared (Eq. 6-8)


@pytest.mark.parametrize("n", [1, 2, 7, 70])
def test_the_overall_style_is_pooled(n: int) -> None:
    data = held(n=n, side=16)
    (found,) = shared(ccst(), data)
    assert isinstance(found, StyleStatistics)
    mean, std = pooled(digits_codec().encode(data.images))
    assert found.mean.tolist() == pytest.approx(mean, abs=1e-5)
    assert found.std.tolist() == pytest.approx(std, rel=1e-4)
    assert (found.level, found.layer, found.rule) == ("client", "stage3", "pooled_biased")
    assert (found.client, found.round) == ("client-0", 0)


def test_the_overall_style_of_one_image_is_its_own() -> None:
    alone = held(n=1, side=16)
    (overall,), (single,) = shared(ccst(), alone), shared(ccst(style="single"), alone)
    assert (overall.level, single.level) == ("client", "image")
    assert equal(overall.tensors(), single.tensors())
    copies = replace(alone, pixels=alone.images.expand(9, -1, -1, -1), labels=alone.labels.expand(9))
    (many,) = shared(ccst(), copies)
    for name, tensor in single.tensors().items():
        torch.testing.assert_close(many.tensors()[name], tensor, rtol=1e-5, atol=1e-6)


def test_single_styles_are_of_drawn_images() -> None:
    data, each = held(n=9, side=16), digits_codec().encode(held(n=9, side=16).images)
    of = {round(pooled(features[None])[0][0], 4): i for i, features in enumerate(each)}
    seen: Counter[int] = Counter()
    for seed in range(40):
        client = ccst(style="single", images_per_style=3).client(federation(), data, seeded(seed))
        means = [round(float(draft.finish().mean[0]), 4) for draft in client.style([])]
        assert len({of[mean] for mean in means}) == 3
        seen.update(of[mean] for mean in means)
    assert set(seen) == set(range(9))
    assert stats.chisquare(list(seen.values())).pvalue > SURE


def test_a_client_shares_so_many_single_styles() -> None:
    for n, per, j in ((1, 32, 1), (32, 32, 1), (33, 32, 2), (5, 2, 3), (1499, 32, 47)):
        assert len(shared(ccst(style="single", images_per_style=per), held(n=n))) == j


def test_images_may_be_resized_for_their_style() -> None:
    data = held(n=3)
    (found,) = shared(ccst(side=16), data)
    larger = nn.functional.interpolate(data.images, size=(16, 16), mode="bilinear", antialias=True)
    assert found.tensors()["mean"].tolist() == pytest.approx(pooled(digits_codec().encode(larger))[0], abs=1e-5)


# Redrawing (Eq. 5)


def plain_codec() -> StyleCodec:
    """Features are colours, so that a redrawn image's own statistics are the style's."""
    return StyleCodec("plain", nn.Sequential(nn.Identity()), nn.Sequential(nn.Identity()), (1,))


def test_a_stylised_image_has_the_moments_of_its_style() -> None:
    images = torch.rand(2, 3, 9, 9, generator=seeded(0))
    how = taken.FeatureStyle(plain_codec(), None, CPU)
    styles = [
        replace(style("b", 0.0), mean=torch.tensor([0.4, 0.5, 0.6]) + shift, std=torch.tensor([0.02, 0.05, 0.1]))
        for shift in (0.0, 0.05)
    ]
    made = how.apply(images, styles, 1.0)
    for image, content, wanted in zip(made, images, styles, strict=True):
        own = content.flatten(1).std(1)
        torch.testing.assert_close(image.mean((1, 2)), wanted.mean, rtol=0, atol=1e-6)
        expected = wanted.std * own / (own.square() + 1e-5).sqrt()
        torch.testing.assert_close(image.flatten(1).std(1), expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(how.apply(images, styles, 0.0), images)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_stylising_is_adain_in_the_codec(alpha: float) -> None:
    codec, images, wanted = digits_codec(), held(n=2, side=16).images, [style("b", 0.3), style("c", -0.2)]
    made = taken.FeatureStyle(codec, None, CPU).apply(images, wanted, alpha)
    for image, content, to in zip(made, images, wanted, strict=True):
        features = codec.encode(content[None])[0]
        moved = torch.stack([
            to.std[c] * (f - f.mean()) / math.sqrt(float(f.var()) + 1e-5) + to.mean[c] for c, f in enumerate(features)
        ])  # fmt: skip
        expected = codec.decode((alpha * moved + (1 - alpha) * features)[None])[0].clamp(0, 1)
        torch.testing.assert_close(image, expected, rtol=0, atol=1e-4)


def test_the_adain_codec_is_read_from_files(tmp_path: Path, vgg: StyleCodec) -> None:
    save_file(dict(vgg.encoder.state_dict()), tmp_path / "vgg_normalised.safetensors")
    save_file(dict(vgg.decoder.state_dict()), tmp_path / "decoder.safetensors")
    method = ccst(codec="adain_vgg", codec_weights=tmp_path, side=20, rounds=1)
    method.check(method.model(federation(), seeded(0)))
    _, transcript = run(method)
    for record, artifact in transcript.of_kind("style_statistics"):
        assert (record.layer, record.nbytes) == ("stage4", 4096)
        assert artifact is not None
    data = held(n=2)
    larger = nn.functional.interpolate(data.images, size=(20, 20), mode="bilinear", antialias=True)
    features = method.disclosure().styles.features(method.model(federation(), seeded(0)), "stage4")(data.images)
    torch.testing.assert_close(features, vgg.encode(larger))
    client = stylised(method, data, [style(f"client-{i}", 0.1 * i, size=512) for i in range(3)])
    assert client.data.images.shape == (4, 3, 8, 8)
    assert 0 <= float(client.data.images.min()) <= float(client.data.images.max()) <= 1


# Which copy takes which style (Algorithm 1)


def transferred(bank: Any, n: int, k: int, seed: int = 0, block: int = 1, keep: bool = False) -> tuple[Tensor, Tensor]:
    """For each image its copies (n, k): the domain whose style it took, -1 where unchanged; and the style's number.

    Images are their own number in colour 0; "redrawing" writes the style's mean into colour 1.
    """
    images = torch.zeros(n, 3, 1, 1)
    images[:, 0, 0, 0] = torch.arange(n)
    images[:, 1] = -1

    def redraw(given: Tensor, styles: Any) -> Tensor:
        means = torch.stack([style.mean[:1] for style in styles])
        return torch.cat([given[:, :1], means[..., None, None], given[:, 2:]], dim=1)

    made = bank.transfer(images, *bank.draw(n, k, block, seeded(seed), keep), redraw).view(n, k, 3)
    assert torch.equal(made[..., 0], torch.arange(n).float()[:, None].expand(n, k))
    mark = made[..., 1]
    return torch.where(mark < 0, mark, (mark / 100).floor()).int(), (mark % 100).int()


def bank(sizes: tuple[int, ...], own: bool = True) -> Any:
    """Domain d's style number j has the mean 100 d + j; client-1 is asked."""
    message = [style(f"client-{d}", 100.0 * d + j) for d, size in enumerate(sizes) for j in range(size)]
    return stored.Bank.of(message, "client-1", own)


def test_each_image_takes_each_domain_s_style_once() -> None:
    domains, _ = transferred(bank((1, 1, 1, 1)), 20, 4)
    assert all(sorted(row) == [-1, 0, 2, 3] for row in domains.tolist())


@pytest.mark.parametrize("k", [1, 2])
def test_every_set_of_domains_is_as_likely(k: int) -> None:
    domains, _ = transferred(bank((1, 1, 1)), 3000, k)
    drawn = Counter(tuple(sorted(row)) for row in domains.tolist())
    assert len(drawn) == 3
    assert stats.chisquare(list(drawn.values())).pvalue > SURE
    unchanged = int((domains == -1).sum())
    assert stats.binomtest(unchanged, 3000, k / 3).pvalue > SURE


def test_every_single_style_is_as_likely() -> None:
    domains, numbers = transferred(bank((4, 2, 7)), 4000, 2)
    for domain, size in ((0, 4), (2, 7)):
        drawn = Counter(numbers[domains == domain].tolist())
        assert set(drawn) == set(range(size))
        assert stats.chisquare(list(drawn.values())).pvalue > SURE


def test_a_block_of_images_shares_its_styles() -> None:
    domains, numbers = transferred(bank((50, 1, 50)), 64, 3, block=32)
    for domain in (0, 2):
        of_image = numbers[domains == domain]
        assert [len(set(block.tolist())) for block in of_image.split(32)] == [1, 1]
    domains, numbers = transferred(bank((50, 1, 50)), 64, 3)
    assert len(set(numbers[domains == 0].tolist())) > 10


@pytest.mark.parametrize(("clients", "k"), [(3, 2), (3, 3), (15, 3)])
def test_kept_originals_stand_beside_drawn_styles(clients: int, k: int) -> None:
    domains, _ = transferred(bank((1,) * clients), 3000, k, keep=True)
    assert (domains == -1).sum(1).tolist() == [1] * 3000
    assert all(len(set(row)) == k for row in domains.tolist())
    drawn = Counter(domains[domains >= 0].tolist())
    assert set(drawn) == set(range(clients)) - {1}
    assert stats.chisquare(list(drawn.values())).pvalue > SURE


def test_originals_left_by_algorithm_1_and_by_presets() -> None:
    """N = 15: K of 15 copies are untouched by Algorithm 1, one of K by the presets; the paper's N = K = 3 has one of K."""
    for preset, n, untouched in (("paper", 15, 3 / 15), ("paper", 3, 1.0), ("default", 15, 1.0), ("quick", 6, 1.0)):
        method: Any = AuditConfig(methods=("ccst",), preset=preset).method("ccst")
        small = replace(method, codec="digits", side=None)
        data = held(n=200)
        message = [style(f"client-{i}", 0.1 * i) for i in range(n)]
        copies = stylised(small, data, message).data.images.view(200, 3, 3, 8, 8)
        same = (copies == data.images[:, None]).flatten(2).all(2).sum(1)
        assert int(same.max()) == 1
        if untouched == 1:
            assert int(same.sum()) == 200
        else:
            assert stats.binomtest(int(same.sum()), 200, untouched).pvalue > SURE


@pytest.mark.parametrize(
    ("keep", "own", "clients", "left"),
    [
        (True, True, 15, (3, True)),
        (True, True, 2, (2, True)),
        (True, True, 1, (1, False)),
        (False, False, 2, (1, False)),
    ],
)
def test_smaller_federations_make_fewer_copies(keep: bool, own: bool, clients: int, left: tuple[int, bool]) -> None:
    cut = ccst(augmentation=3, keep_original=keep, own=own).for_clients(clients)
    assert (cut.augmentation, cut.keep_original) == left
    cut.model(federation(clients), seeded(0))


def test_originals_alone_are_no_style_transfer() -> None:
    with pytest.raises(ValueError, match=r"^ccst\.keep_original: want augmentation of at least 2 .*got augmentation=1"):
        ccst(augmentation=1, keep_original=True)


def test_without_its_own_style_no_copy_is_unchanged() -> None:
    domains, _ = transferred(bank((1, 1, 1), own=False), 200, 1)
    assert set(domains.flatten().tolist()) == {0, 2}


def stylised(method: Any, data: ClientData, message: Message, seed: int = 1) -> Any:
    client = method.client(federation(len({a.client for a in message})), data, seeded(seed))
    assert client.stylise(message) == []
    return client


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("names", "copies"),
    [
        ([*[SERVER] * 4, "client-0"], 3),  # `interpolate` makes other clients' styles the server's
        (["client-1"], 2),  # `min_clients` withholds the others', and the client's own
        ([], 1),
    ],
)
def test_copies_keep_labels_under_any_defense(keep: bool, names: list[str], copies: int) -> None:
    data = held(n=60)
    method = ccst(augmentation=3, keep_original=keep)
    client = method.client(federation(5), data, seeded(1))
    assert client.stylise([style(name, 0.1 * i) for i, name in enumerate(names, start=1)]) == []
    assert (len(client.data), client.data.copies) == (60 * copies, copies)
    assert client.data.labels.tolist() == [label for label in data.labels.tolist() for _ in range(copies)]
    same = (client.data.images.view(60, copies, 3, 8, 8) == data.images[:, None]).flatten(2).all(2).sum(1)
    assert int(same.max()) == 1
    if keep or copies < 3:
        assert int(same.sum()) == 60
    else:
        assert stats.binomtest(int(same.sum()), 60, 3 / 5).pvalue > SURE


def test_images_and_labels_are_equally_many() -> None:
    data = held(n=5)
    with pytest.raises(ValueError, match=r"^client-0: want a label for each image, got 5 and 4$"):
        replace(data, labels=data.labels[:4])


def test_copies_have_the_label_of_their_image() -> None:
    data = held(n=5)
    client = stylised(ccst(augmentation=3), data, [style(f"client-{i}", 0.1 * i) for i in range(3)])
    assert client.data.labels.tolist() == [label for label in data.labels.tolist() for _ in range(3)]
    assert torch.equal(client.data.held_out_images, data.held_out_images)
    redrawn = taken.FeatureStyle(digits_codec(), None, CPU)
    for i, copies in enumerate(client.data.images.view(5, 3, 3, 8, 8)):
        expected = [data.images[i]] + [
            redrawn.apply(data.images[i : i + 1], [style("b", 0.1 * d)], 1.0)[0] for d in (1, 2)
        ]
        for copy in expected:
            assert sum(torch.allclose(copy, one, atol=1e-5) for one in copies) == 1
        assert sum(torch.equal(data.images[i], one) for one in copies) == 1


def test_simulated_clients_train_on_as_many_copies() -> None:
    method, data = ccst(augmentation=3, batch_size=4, image_changes="none"), held(n=10)
    trained = [images for images, _ in method.plain_batches(data, seeded(1))]
    assert len(trained) == method.steps(10) == 7
    rows = torch.cat(trained).flatten(1)
    times = (rows[:, None] == data.images.flatten(1)).all(2).sum(0)
    assert times.sum() == 28  # the last two of 30 copies are no whole batch
    assert set(times.tolist()) <= {1, 2, 3}


def test_images_are_stylised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    apply = taken.FeatureStyle.apply

    def counted(self: Any, images: Tensor, *rest: Any) -> Tensor:
        calls.append(len(images))
        made: Tensor = apply(self, images, *rest)
        return made

    monkeypatch.setattr(taken.FeatureStyle, "apply", counted)
    state, _ = run(ccst(rounds=4, augmentation=3, selection="last"))
    assert sum(calls) == 2 * (5 + 4 + 3)
    steps = [3 * n // 4 for n in (5, 4, 3)]
    assert int(state["backbone.body.layer1.1.num_batches_tracked"]) == 4 * (sum(steps) // 3)


# Who is told


@pytest.mark.parametrize("mode", ["overall", "single"])
def test_every_client_receives_every_style(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    received: dict[str, Message] = {}
    inner = part.CCSTClient.stylise

    def spying(self: Any, message: Message) -> Message:
        received[self.data.client] = message
        answer: Message = inner(self, message)
        return answer

    monkeypatch.setattr(part.CCSTClient, "stylise", spying)
    _, transcript = run(ccst(style=mode, images_per_style=2, rounds=1))
    sent = [a for r, a in transcript.of_kind("style_statistics") if r.receiver == SERVER and a is not None]
    counts = [1, 1, 1] if mode == "overall" else [3, 2, 2]
    assert [a.client for a in sent] == [f"client-{i}" for i, count in enumerate(counts) for _ in range(count)]
    assert set(received) == {"client-0", "client-1", "client-2"}
    for name, message in received.items():
        assert len(message) == len(sent)
        others = iter((PEER, f"{PEER}-2"))
        alias = {a.client: None for a in sent} | {name: name}
        alias = {client: known or next(others) for client, known in alias.items()}
        for got, original in zip(message, sent, strict=True):
            assert got.client == alias[original.client]
            assert equal(got.tensors(), original.tensors())


# The ledger, byte for byte


@pytest.mark.parametrize(
    ("mode", "target", "up", "down"),
    [
        ("overall", "sketch", {"photo": 4096, "art": 4096, "cartoon": 4096}, 12_288),
        ("single", "sketch", {"photo": 217_088, "art": 262_144, "cartoon": 303_104}, 782_336),
        ("single", "photo", {"art": 262_144, "cartoon": 303_104, "sketch": 503_808}, 1_069_056),
    ],
)
def test_styles_and_bank_have_the_paper_s_bytes(
    mode: str, target: str, up: dict[str, int], down: int, vgg: StyleCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "codec_on", lambda *which: vgg)
    method = Method.named("ccst").configured({"style": mode, "codec": "adain_vgg"})
    names = tuple(name for name in PACS if name != target)
    world = Federation(names, 7, 16, network(1), 0)
    sizes = {name: PACS[name][0] if mode == "single" else 3 for name in names}
    data = {
        name: ClientData(name, torch.rand(1, 3, 16, 16).expand(n, -1, -1, -1), torch.zeros(n, dtype=torch.int64),
                        torch.rand(1, 3, 16, 16), torch.zeros(1, dtype=torch.int64), 7)
        for name, n in sizes.items()
    }  # fmt: skip
    wire = Wire(sizes, Defense.named("none")(), Transcript("all"))
    server: Any = method.server(world, seeded(0))
    ask, answers = next(server), {}
    for name in names:
        client: Any = method.client(world, data[name], seeded(1))
        message = client.style(wire.down(name, ask.verb, ask.messages[name]))
        answers[name] = over_wire(wire, name, ask.verb, message, seeded(2))
    ask = server.send(answers)
    for name in names:
        assert len(wire.down(name, ask.verb, ask.messages[name])) == down // 4096
    for name in names:
        mine = [r for r in wire.transcript.records if r.sender == name]
        assert sum(r.nbytes for r in mine) == up[name]
        assert len(mine) == (PACS[name][1] if mode == "single" else 1)
        assert {r.samples for r in mine} == {1 if mode == "single" else 3}
        assert {tuple(r.shapes.items()) for r in mine} == {
            (("mean", (512,)), ("std", (512,)), ("mean_var", (0,)), ("std_var", (0,)))
        }
        assert sum(r.nbytes for r in wire.transcript.records if r.receiver == name) == down
    rows = {row.verb: row for row in ledger(wire.transcript.records, method.disclosure().sent_as)}
    assert (rows["style"].kind, rows["stylise"].kind) == ("style_statistics", "style_bank")
    assert rows["style"].per_client_per_round_bytes == max(up.values())
    assert (rows["stylise"].per_client_per_round_bytes, rows["stylise"].via) == (down, "server")
    assert rows["stylise"].level == ("image" if mode == "single" else "client")


def test_a_run_is_styles_bank_models_accuracies() -> None:
    _, transcript = run(ccst(rounds=2))
    names, model = ("client-0", "client-1", "client-2"), 4 * (27 * 4 + 4 + 4 * 4 + 4 * 3 + 3) + 8
    assert Counter((r.verb, r.kind, r.round, r.sender == SERVER, r.relayed, r.nbytes) for r in transcript.records) == {
        ("style", "style_statistics", 0, False, False, 512): 3,
        ("stylise", "style_statistics", 0, True, True, 512): 9,
        **{("fit", "model_state", t, down, False, model): 3 for t in (0, 1) for down in (True, False)},
        ("fit", "validation_metrics", 1, False, False, 4): 3,
        ("validate", "model_state", 2, True, False, model): 3,
        ("validate", "validation_metrics", 2, False, False, 4): 3,
    }
    assert {r.receiver for r in transcript.records if r.sender == SERVER} == set(names)


def test_sample_counts_include_stylised_copies() -> None:
    _, transcript = run(ccst(rounds=1, weights="samples", selection="last", augmentation=3))
    counts = {r.origin: int(a.tensors()["count"]) for r, a in transcript.of_kind("sample_count") if a is not None}
    assert counts == {"client-0": 15, "client-1": 12, "client-2": 9}
    assert {r.verb for r in transcript.records} == {"style", "stylise", "fit"}


# Selection by validation


def answered(told: float | None, states: Mapping[str, Message], add: float) -> dict[str, Message]:
    """Models moved by `add`, and the accuracies told +- 0.1."""
    answers: dict[str, Message] = {}
    for number, (name, message) in enumerate(states.items()):
        (sent,) = message
        assert isinstance(sent, ModelState)
        moved = {key: value + add if value.is_floating_point() else value for key, value in sent.state.items()}
        answers[name] = [ModelState(client=name, round=sent.round, state=moved)]
        if told is not None:
            accuracy = torch.tensor(told + (0.1, -0.1)[number])
            answers[name].append(ValidationMetrics(client=name, round=sent.round, accuracy=accuracy))
    return answers


@pytest.mark.parametrize(("accuracies", "best"), [((0.4, 0.8, 0.5), 2), ((0.4, 0.5, 0.8), 3), ((0.6, 0.6, 0.6), 1)])
def test_the_model_best_in_validation_is_returned(accuracies: tuple[float, ...], best: int) -> None:
    server = ccst(rounds=3).server(federation(2), seeded(0))
    next(server)
    server.send({name: [style(name, 0.1)] for name in ("client-0", "client-1")})
    ask = server.send({"client-0": [], "client-1": []})
    start = {key: value.clone() for key, value in ask.messages["client-0"][0].state.items()}
    for told in (None, *accuracies[:-1]):
        assert (ask.verb, ask.reduce) == ("fit", "mean")
        ask = server.send(answered(told, ask.messages, 1.0))
    assert (ask.verb, ask.messages["client-0"][0].round) == ("validate", 3)
    with pytest.raises(StopIteration) as done:
        server.send(answered(accuracies[-1], ask.messages, 0.0))
    for key, value in done.value.value.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, start[key] + best, rtol=0, atol=1e-5)


def test_a_client_shares_its_held_out_accuracy() -> None:
    method, data = ccst(), held(n=5, out=7)
    client = stylised(method, data, [style(f"client-{i}", 0.1) for i in range(3)])
    model = method.model(federation(), seeded(9))
    (told,) = client.validate([ModelState.of(model, SERVER, 1)])
    right = (model.eval()(data.held_out_images).argmax(1) == data.held_out_labels).tolist()
    assert float(told.accuracy) == pytest.approx(sum(right) / 7)
    with_fit = client.fit([ModelState.of(model, SERVER, 1)])
    assert [type(a) for a in with_fit] == [ModelState, ValidationMetrics]
    assert float(with_fit[1].accuracy) == float(told.accuracy)
    assert [type(a) for a in client.fit([ModelState.of(model, SERVER, 0)])] == [ModelState]


# Amplitudes (Appendix E)


def test_amplitudes_of_one_image_or_their_mean() -> None:
    data = held(n=5)
    spectra = np.abs(np.fft.fft2(data.images.double().numpy()))
    (overall,) = shared(ccst(style_of="amplitude"), data)
    assert isinstance(overall, AmplitudeSpectrum)
    np.testing.assert_allclose(overall.amplitude.numpy(), spectra.mean(0), rtol=1e-6)
    singles = shared(ccst(style_of="amplitude", style="single", images_per_style=2), data)
    assert [single.level for single in singles] == ["image"] * 3
    for single in singles:
        assert min(np.abs(single.tensors()["amplitude"].numpy() - one).max() for one in spectra) < 1e-5


def test_an_amplitude_of_224_px_has_602112_bytes() -> None:
    (found,) = shared(ccst(style_of="amplitude", style="single"), held(n=1, side=224))
    assert found.nbytes == 602_112


def test_exchanging_amplitudes_keeps_the_phase() -> None:
    content, other = torch.rand(2, 3, 8, 8, generator=seeded(0)) * 0.02 + 0.5
    wanted = torch.fft.fft2(other).abs()
    given = AmplitudeSpectrum(client="b", round=0, amplitude=wanted, granularity="image")
    made = taken.AmplitudeStyle(0.5).apply(content[None], [given], 1.0)[0]
    spectrum = torch.fft.fft2(made)
    torch.testing.assert_close(spectrum.abs(), wanted, rtol=0, atol=1e-4)
    turned = torch.fft.fft2(content).angle() - spectrum.angle()
    assert float((1 - turned.cos()).max()) < 1e-4
    half = taken.AmplitudeStyle(0.5).apply(content[None], [given], 0.5)[0]
    between = (wanted + torch.fft.fft2(content).abs()) / 2
    torch.testing.assert_close(torch.fft.fft2(half).abs(), between, rtol=0, atol=1e-4)


def test_a_window_exchanges_low_frequencies() -> None:
    content, other = torch.rand(2, 3, 8, 8, generator=seeded(0)) * 0.2 + torch.tensor([0.3, 0.5])[:, None, None, None]
    given = AmplitudeSpectrum(client="b", round=0, amplitude=torch.fft.fft2(other).abs(), granularity="image")
    colour = taken.AmplitudeStyle(0.0).apply(content[None], [given], 1.0)[0]
    expected = content + (other.mean((1, 2)) - content.mean((1, 2)))[:, None, None]
    torch.testing.assert_close(colour, expected, rtol=0, atol=1e-5)
    changed = torch.fft.fft2(taken.AmplitudeStyle(0.13).apply(content[None], [given], 1.0)[0] - content).abs() > 1e-4
    near = {0, 1, 7}
    assert {(h, w) for _, h, w in changed.nonzero().tolist()} == {(h, w) for h in near for w in near}


def test_amplitudes_cross_once() -> None:
    state, transcript = run(ccst(style_of="amplitude", rounds=1))
    assert finite(state)
    assert {r.kind for r in transcript.records if r.relayed} == {"amplitude_spectrum"}
    disclosed = ccst(style_of="amplitude").disclosure()
    assert (disclosed.releases("amplitude_spectrum"), disclosed.releases("style_statistics")) == (1, 0)


def test_a_malformed_amplitude_is_refused() -> None:
    with refused("want .*amplitude"):
        AmplitudeSpectrum(client="a", round=0, amplitude=torch.zeros(8, 8), granularity="image")
    with refused("want .*granularity"):
        AmplitudeSpectrum(client="a", round=0, amplitude=torch.zeros(3, 8, 8), granularity="pixel")


# Options and bad input


def test_the_other_presets_train_as_fedavg_does() -> None:
    for preset in ("quick", "default"):
        ours, theirs = (AuditConfig(preset=preset).method(name) for name in ("ccst", "fedavg"))
        assert (ours.augmentation, ours.keep_original, ours.local_epochs) == (3, True, 1)  # type: ignore[attr-defined]
        for name in ("rounds", "batch_size", "lr", "momentum", "weight_decay", "schedule"):
            assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize(
    ("settings", "clients", "told"),
    [
        ({"augmentation": 4}, 3, r"ccst\.augmentation: want at most as many as clients \(3\), got 4"),
        ({"augmentation": 3, "own": False}, 3, r"ccst\.augmentation: .* other clients \(2\), got 3"),
        ({"augmentation": 1, "own": False}, 1, r"ccst\.augmentation: .*\(0\), got 1"),
        ({"side": 16, "style_of": "amplitude"}, 3, r"ccst\.side: want none with style_of=amplitude.*got 16"),
        ({"side": 10}, 3, r"ccst\.side: want at least 8 px and a multiple of 4 for the codec digits, got 10"),
        ({"side": 8, "codec": "adain_vgg"}, 3, r"ccst\.side: want at least 16 px for the codec adain_vgg, got 8"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], clients: int, told: str) -> None:
    with refused(f"^{told}$"):
        ccst(**settings).model(federation(clients), seeded(0))


def test_the_command_line_refuses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["--method", "ccst", "--preset", "quick", "--set", "augmentation=13", "--out", str(out)]) == 2
    said = capsys.readouterr().err.strip()
    assert "want at most as many as clients (6), got 13" in said
    assert len(said.splitlines()) == 1
    assert not out.exists()


def test_progress_of_every_verb_is_reported() -> None:
    told: list[tuple[str, int, int]] = []
    data = {name: held(name, 3) for name in federation().clients}
    wire = Wire(dict.fromkeys(data, 3), Defense.named("none")(), Transcript("small"))
    LocalEngine(2, on_answer=lambda *answers: told.append(answers)).run(ccst(rounds=1), federation(), data, wire)
    verbs = ("style", "stylise", "fit", "validate")
    assert told == [(verb, done, 3) for verb in verbs for done in (1, 2, 3)]


def test_missing_weights_of_adain_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    method = ccst(codec="adain_vgg", side=16, codec_weights=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"want vgg_normalised\.safetensors or .*looked for it in"):
        method.check(method.model(federation(), seeded(0)))


def test_selection_needs_held_out_images() -> None:
    with pytest.raises(ValueError, match=r"^ccst\.selection: want held-out images .*got none of client-0; use .*last$"):
        ccst().client(federation(), held(out=0), seeded(0))
    ccst(selection="last").client(federation(), held(out=0), seeded(0))


def test_a_client_alone_is_fedavg_on_its_own_images() -> None:
    client = stylised(ccst(augmentation=1), held(n=5), [style("client-0", 0.3)])
    assert torch.equal(client.data.images, held(n=5).images)
    _, transcript = run(ccst(augmentation=1), sizes=(5,))
    evidence = RecordedStyles.of(transcript, ccst(augmentation=1), federation(1), 0)
    assert evidence.receiver == {}  # its own style came back to it, and to nobody else


@pytest.mark.parametrize("settings", [{}, {"style_of": "amplitude"}, {"split": "after"}], ids=str)
def test_copies_of_8_bit_images_have_8_bits(settings: dict[str, Any]) -> None:
    """A quarter of the memory of floats: 3.3 GB instead of 13.3 GB for PACS at 222 px, K = 3 and target photo."""
    like, method = held(n=6), ccst(augmentation=3, **settings)
    eight, held_out = ((255 * images).round().to(torch.uint8) for images in (like.images, like.held_out_images))
    data = replace(like, pixels=eight, held_out_pixels=held_out)
    as_floats = replace(like, pixels=eight.float() / 255, held_out_pixels=held_out.float() / 255)
    (ours,), (theirs,) = shared(method, data), shared(method, as_floats)
    assert equal(ours.tensors(), theirs.tensors())
    kind = type(ours)
    message = [kind(**{**vars(ours), "client": f"client-{i}"}) for i in range(3)]
    coarse, fine = (stylised(method, each, message).data for each in (data, as_floats))
    assert coarse.pixels.dtype == coarse.held_out_pixels.dtype == torch.uint8
    assert fine.pixels.dtype == torch.float32
    for of_eight, of_floats in ((coarse.pixels, fine.pixels), (coarse.held_out_pixels, fine.held_out_pixels)):
        assert torch.equal(of_eight, (255 * of_floats).round().to(torch.uint8))
    every = torch.cat([coarse.pixels, coarse.held_out_pixels])
    assert all(bool((every == image).flatten(1).all(1).any()) for image in eight)


def test_splitting_after_stylising_mixes_copies() -> None:
    data = held(n=8, out=4)
    message = [style(f"client-{i}", 0.1 * i) for i in range(3)]
    method = ccst(augmentation=2, split="after")
    client = stylised(method, data, message)
    assert (len(client.data), len(client.data.held_out_labels)) == (16, 8)
    union = replace(data, pixels=torch.cat([data.images, data.held_out_images]), labels=torch.zeros(12).long())
    (overall,), (of_union,) = shared(method, data), shared(ccst(), union)
    assert equal(overall.tensors(), of_union.tensors())
    labels = torch.cat([client.data.labels, client.data.held_out_labels]).bincount(minlength=3)
    assert torch.equal(labels, 2 * torch.cat([data.labels, data.held_out_labels]).bincount(minlength=3))


# The same seed, the same run; and what the evaluation makes of it


def ccst_on(tiny: Dataset, clients: int = 3, defense: str = "none", **settings: str) -> Fitted:
    """A quick training on the digits."""
    given = {"augmentation": "2", **settings}
    return fitted_once(tiny, clients=clients, method="ccst", settings=given, defense=defense)


def style_simulator(evaluator: Evaluator) -> StyleSimulator:
    simulator = evaluator.series("style_statistics").simulator
    assert isinstance(simulator, StyleSimulator)
    return simulator


def test_observations_are_of_the_style_that_crossed(tiny: Dataset) -> None:
    evaluator = ccst_on(tiny).evaluator()
    evidence = evaluator.recorded_styles
    assert evaluator.template.level == "client"
    assert evaluator.layers() == ("stage1", "stage2", "stage3")
    for name, artifact in evidence.wire.items():
        mean, std = evidence.styles(evaluator.population.data(name).images, "stage3")
        again = style_simulator(evaluator).draft(mean, std, "client").finish()
        assert all(torch.allclose(again.tensors()[k], t, atol=1e-6) for k, t in artifact.tensors().items())
        assert evidence.receiver[name] != name
    (adversary_trials,) = evaluator.style_adversaries(threat("server"), (1, None), Images())
    whole = [trial for trial in adversary_trials.trials if trial.size is None and trial.client in evidence.wire]
    assert len(whole) == 3
    for trial in whole:
        asked = trial.by_role["attack"][0].observation.artifact
        assert torch.equal(asked.vector(), evidence.wire[trial.client].vector())


def test_observations_where_single_styles_cross(tiny: Dataset) -> None:
    evaluator = ccst_on(tiny, style="single", images_per_style="9").evaluator()
    assert evaluator.template.level == "image"
    evidence = evaluator.recorded_styles
    adversaries = evaluator.style_adversaries(threat("client"), (1, None))
    trials = [trial for adversary_trials in adversaries for trial in adversary_trials.trials]
    assert {trial.size for trial in trials} == {1, None}
    for trial in trials:
        mean, std = evidence.styles(evaluator.population.data(trial.client).images, "stage3")
        observation = trial.by_role["attack"][0].observation
        assert observation.artifact.level == ("image" if trial.size == 1 else "client")
        if trial.size is None:
            expected = style_simulator(evaluator).draft(mean, std, "client").finish().vector()
            torch.testing.assert_close(observation.artifact.vector(), expected)


def test_a_malicious_client_holds_another_domain(tiny: Dataset) -> None:
    evaluator = ccst_on(tiny, 6).evaluator()
    main = evaluator.population.main_domain
    assert len(evaluator.recorded_styles.receiver) == 6
    assert all(main(client) != main(holder) for client, holder in evaluator.recorded_styles.receiver.items())


def test_gaussian_noise_protects_what_is_shared(tiny: Dataset) -> None:
    defended = ccst_on(tiny, defense="gaussian:epsilon=4")
    assert vars(defended.defense)["releases"] == 1
    evaluator = defended.evaluator()
    evidence = evaluator.recorded_styles
    for name, artifact in evidence.wire.items():
        mean, std = evidence.styles(defended.population.data(name).images, "stage3")
        assert not torch.equal(artifact.mean, style_simulator(evaluator).draft(mean, std, "client").finish().mean)
    single = ccst(style="single")
    assert single.disclosure().per_image("style_statistics")
    assert not ccst().disclosure().per_image("style_statistics")
    Defense.parse("gaussian:unit=image").bound_to(single.disclosure())
    with pytest.raises(ValueError, match=r"^gaussian\.unit: want image where ccst shares style statistics of single"):
        Defense.parse("gaussian:unit=client").bound_to(single.disclosure())
