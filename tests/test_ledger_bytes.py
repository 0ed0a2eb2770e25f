"""What crosses the wire, byte for byte, in every method."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import mostly_slow, pretrained, with_extra
from safetensors.torch import save_file

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import Record, Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.models.adain_vgg import decoder_layers, encoder_layers
from fdgpriv.models.backbone import Backbone, backbone
from fdgpriv.results.ledger import ledger
from fdgpriv.utils.seeds import generator

PHI = 1024  # 4 x 64 float32: mean, std and both variances of layer1 of a ResNet-18


def federation(clients: int, classes: int = 7, network: str = "resnet18") -> Federation:
    """At 32 px, where a stem of stride 1 leaves the last map 4 x 4; the tensors are those of 224 px."""

    def build(rng: torch.Generator) -> Backbone:
        return backbone(network, mean=(0.5,) * 3, std=(0.5,) * 3, rng=rng, small_input=True)

    return Federation(tuple(f"client-{i}" for i in range(clients)), classes, 32, build, seed=0)


def held(client: str, n: int, size: int = 32, out: int = 0) -> ClientData:
    rng = generator(7, n)
    labels = torch.arange(n) % 2
    images = torch.rand(n, 3, size, size, generator=rng)
    return ClientData(client, images, labels, images[:out], labels[:out], 7)


def crossed(
    spec: str, clients: int, network: str = "resnet18", rounds: int = 1, size: int = 32, out: int = 0, **settings: Any
) -> Transcript:
    """The transcript of a run; client i trains on 3 + i images of `size` px, and holds `out` images out."""
    small = {"rounds": rounds, "participants": None, "local_epochs": 1, "batch_size": 8, "lr": 0.01}
    world = federation(clients, network=network)
    data = {name: held(name, 3 + i, size, out) for i, name in enumerate(world.clients)}
    wire = Wire({name: len(part) for name, part in data.items()}, Defense.named("none")(), Transcript(keep="small"))
    LocalEngine(2).run(Method.named(spec).configured(small | settings), world, data, wire)
    return wire.transcript


def weight(spec: str, network: str) -> int:
    """Bytes of the method's model, whose size for the papers' networks is tested first."""
    return ModelState.of(Method.named(spec)().model(federation(2, network=network), generator(0)), SERVER, 0).nbytes


def lines(transcript: Transcript) -> Counter[tuple[str, str, str, str, int]]:
    return Counter((r.verb, r.kind, r.sender, r.receiver, r.nbytes) for r in transcript.records)


def relayed(transcript: Transcript) -> list[Record]:
    return [record for record in transcript.records if record.relayed]


# The weight of a model


@pytest.mark.parametrize(
    ("spec", "network", "classes", "parameters", "nbytes"),
    [
        ("fedavg", "resnet18", 7, 11_180_103, 44_758_972),
        ("fedavg", "resnet18", 65, 11_209_857, 44_877_988),
        ("fedavg", "resnet50", 7, 23_522_375, 94_302_404),
        ("fedavg", "densenet121", 2, 6_955_906, 28_159_184),
        ("stablefdg", "resnet18", 7, 11_214_407, 44_896_188),
        ("stablefdg", "resnet18", 65, None, 45_133_988),
        ("stablefdg", "resnet50", 7, 23_659_591, 94_851_268),
        ("stablefdg:code_compat=true", "resnet18", 7, 11_229_859, 44_957_996),
        ("stablefdg:code_compat=true", "resnet18", 65, None, 45_195_796),
        pytest.param("stablefdg:code_compat=true", "resnet50", 7, 23_721_123, 95_097_396, marks=pytest.mark.slow),
        ("stablefdg:attention=off", "resnet18", 7, 11_180_103, 44_758_972),
        ("stablefdg:attention=self", "resnet18", 7, 11_214_407, 44_896_188),
        ("stablefdg:attention=conv", "resnet18", 7, 11_214_407, 44_896_188),
        ("pardon", "resnet50", 7, 27_718_727, 111_087_812),
        ("pardon", "resnet50", 65, None, 111_563_180),
        pytest.param("pardon", "resnet50", 182, None, 112_522_112, marks=pytest.mark.slow),
        pytest.param("fedavg", "timm:resnet18", 7, 11_180_103, 44_758_972, marks=with_extra("timm", "timm")),
        pytest.param(
            "stablefdg",
            "timm:resnet18",
            7,
            11_214_407,
            44_896_188,
            marks=[with_extra("timm", "timm"), pytest.mark.slow],
        ),
        pytest.param("fedavg", "efficientnet_lite0", 7, 3_379_975, 13_688_356, marks=pretrained),
        pytest.param("stablefdg", "efficientnet_lite0", 7, 3_465_735, 14_031_396, marks=pretrained),
        pytest.param("pardon", "efficientnet_lite0", 7, 5_019_655, 20_247_076, marks=pretrained),
    ],
)
def test_a_model_weighs_parameters_and_buffers(
    spec: str, network: str, classes: int, parameters: int | None, nbytes: int
) -> None:
    model = Method.parse(spec).model(federation(2, classes, network), generator(0))
    state = ModelState.of(model, SERVER, 0)
    assert state.nbytes == nbytes
    assert parameters in (None, sum(p.numel() for p in model.parameters()))
    layers, channels = {
        "resnet18": (20, 4_800), "resnet50": (53, 26_560), "densenet121": (121, 41_824),
        "efficientnet_lite0": (49, 21_008),  # with 49 counters 42,065 buffer entries
    }[network.removeprefix("timm:")]  # fmt: skip
    statistics = state.bn_statistics()
    assert len(statistics) == layers
    assert sum(len(layer["running_mean"]) for layer in statistics.values()) == channels
    buffers = [layer[name] for layer in statistics.values() for name in ("running_mean", "running_var")]
    assert sum(buffer.nbytes for buffer in buffers) == 8 * channels
    assert sum(layer["num_batches_tracked"].nbytes for layer in statistics.values()) == 8 * layers
    assert nbytes == 4 * sum(p.numel() for p in model.parameters()) + 8 * channels + 8 * layers


# One real round


def test_bytes_of_a_round_of_stablefdg() -> None:
    transcript = crossed("stablefdg", 2)
    model = 44_896_188
    assert lines(transcript) == {
        **{("style", "model_state", SERVER, name, model): 1 for name in ("client-0", "client-1")},
        **{("style", "style_statistics", name, SERVER, PHI): 1 for name in ("client-0", "client-1")},
        **{("fit", "style_statistics", SERVER, name, PHI): 1 for name in ("client-0", "client-1")},
        **{("fit", "model_state", name, SERVER, model): 1 for name in ("client-0", "client-1")},
    }
    assert {(r.origin, r.receiver) for r in relayed(transcript)} == {("client-0", "client-1"), ("client-1", "client-0")}
    for record in transcript.records:
        if record.kind == "style_statistics":
            assert record.shapes == dict.fromkeys(("mean", "std", "mean_var", "std_var"), (64,))
            assert set(record.dtypes.values()) == {"float32"}
            assert (record.level, record.layer, record.clients) == ("client", "layer1", 1)
            assert record.samples == {"client-0": 3, "client-1": 4}[record.origin]
        else:
            counters = [name for name, dtype in record.dtypes.items() if dtype == "int64"]
            assert len(counters) == 20
            assert all(name.endswith("num_batches_tracked") and record.shapes[name] == () for name in counters)
            assert len([name for name in record.shapes if name.endswith(("running_mean", "running_var"))]) == 40
    rows = {(row.kind, row.verb, row.sender, row.to, row.via): row for row in ledger(transcript.records, {})}
    assert {where: row.per_client_per_round_bytes for where, row in rows.items()} == {
        ("model_state", "style", "server", "client", None): model,
        ("style_statistics", "style", "client", "server", None): PHI,
        ("style_statistics", "fit", "client", "client", "server"): PHI,
        ("model_state", "fit", "client", "server", None): model,
    }


def test_bytes_of_a_round_of_fedavg() -> None:
    transcript, model = crossed("fedavg", 2, "small_resnet"), weight("fedavg", "small_resnet")
    assert lines(transcript) == {
        **{("fit", "model_state", SERVER, name, model): 1 for name in ("client-0", "client-1")},
        **{("fit", "model_state", name, SERVER, model): 1 for name in ("client-0", "client-1")},
        **{("fit", "sample_count", name, SERVER, 8): 1 for name in ("client-0", "client-1")},
    }
    counts = {
        record.origin: artifact.tensors()["count"]
        for record, artifact in transcript.of_kind("sample_count")
        if artifact
    }
    assert {name: int(count) for name, count in counts.items()} == {"client-0": 3, "client-1": 4}


@pretrained
@pytest.mark.parametrize(
    ("named", "layer", "channels"),
    mostly_slow([("layer2", "layer2", 24), ("stride4", "layer3", 40)], [("stride4", "layer3", 40)]),
)
def test_a_layer_is_named_alone_or_by_stride(named: str, layer: str, channels: int) -> None:
    """At 32 px the stem has stride 1, so that all strides are half of those of larger images."""
    transcript = crossed("stablefdg", 2, "efficientnet_lite0", style_layer=named, explore_layers=("layer1", "stride2"))
    styles = [record for record in transcript.records if record.kind == "style_statistics"]
    assert len(styles) == 4
    assert {(record.layer, record.nbytes) for record in styles} == {(layer, 4 * 4 * channels)}


@pretrained
@pytest.mark.parametrize("name", mostly_slow(Method.names(), ("stablefdg", "hfedf")))
def test_every_method_trains_a_pretrained_network(name: str) -> None:
    short = {
        "lsi": LSI_SHORT,
        "hfedf": {"hidden": 4},
        "pfedhn": {"hidden": 4},
        "ccst": {"augmentation": 2, "selection": "last"},
        "elcfs": {"buffers": "share", "images_per_spectrum": 2},
    }.get(name, {})
    sent = crossed(name, 2, "efficientnet_lite0", out=int(name == "feddg_ga"), **short).of_kind("model_state")
    uploads = {record.sender: record.nbytes for record, _ in sent if record.receiver == SERVER}
    method: Any = Method.named(name).configured(short)
    own = method.own_network
    senders = 2 if method.federated else int(method.disclosure().shares)
    assert len(uploads) == (0 if own else senders)  # hFedF and pFedHN send updates of a network of their own
    model = method.model(federation(2, network="efficientnet_lite0"), generator(0))
    withheld = sum(model.state_dict()[tensor].nbytes for tensor in ([] if own else method.withheld(model, "client-0")))
    assert all(nbytes >= 13_688_356 - withheld for nbytes in uploads.values())


def test_a_style_of_resnet_50_is_four_times_as_long() -> None:
    world = federation(2, network="resnet50")
    method = Method.named("stablefdg")()
    sent = ModelState.of(method.model(world, generator(0)), SERVER, 0)
    client: Any = method.client(world, held("client-0", 2), generator(1))
    assert [draft.finish().nbytes for draft in client.style([sent])] == [4_096]


def test_bytes_of_a_run_of_pardon(tmp_path: Path) -> None:
    """With the paper's style codec, weights drawn at random."""
    for name, layers in (("vgg_normalised", encoder_layers()), ("decoder", decoder_layers())):
        save_file(layers.state_dict(), tmp_path / f"{name}.safetensors")
    vgg = {"codec": "adain_vgg", "codec_weights": tmp_path, "participants": 1}
    transcript, model = crossed("pardon", 2, "small_resnet", **vgg), weight("pardon", "small_resnet")
    (trained,) = {record.sender for record in transcript.records if record.kind == "sample_count"}
    assert lines(transcript) == {
        **{("style", "style_statistics", name, SERVER, 4_096): 1 for name in ("client-0", "client-1")},
        **{("adopt", "interpolation_style", SERVER, name, 4_096): 1 for name in ("client-0", "client-1")},
        ("fit", "model_state", SERVER, trained, model): 1,
        ("fit", "model_state", trained, SERVER, model): 1,
        ("fit", "sample_count", trained, SERVER, 8): 1,
    }
    assert relayed(transcript) == []
    for record in transcript.records[:4]:
        assert {name: shape for name, shape in record.shapes.items() if shape != (0,)} == {
            "mean": (512,),
            "std": (512,),
        }
        assert (record.layer, set(record.dtypes.values())) == ("stage4", {"float32"})
        own = {"client-0": 3, "client-1": 4}
        told = (own[record.sender], 1) if record.sender != SERVER else (7, 2)
        assert (record.samples, record.clients) == told
    assert [(row.kind, row.level, row.times) for row in ledger(transcript.records, {})][:2] == [
        ("style_statistics", "client", 2),
        ("interpolation_style", "group", 2),
    ]


# BatchNorm statistics: shared, or kept local


@pytest.mark.parametrize("spec", ["fedavg:", "stablefdg:", "pardon:style_transfer=false,"])
@pytest.mark.parametrize("buffers", ["keep_local", "freeze"])
def test_batchnorm_buffers_are_kept_back_or_frozen(buffers: str, spec: str) -> None:
    method: Any = Method.parse(f"{spec}buffers={buffers},participants=none,local_epochs=1,lr=0.01,rounds=1")
    world = federation(1, network="small_resnet")
    sent = next(method.server(world, generator(0))).messages["client-0"]
    answer = method.client(world, held("client-0", 4), generator(1)).fit(sent)
    (state,) = (artifact for artifact in answer if isinstance(artifact, ModelState))
    if buffers == "keep_local":
        assert state.bn_statistics() == {}
    else:
        before = sent[0].bn_statistics()
        after = state.bn_statistics()
        assert all(torch.equal(before[layer][leaf], after[layer][leaf]) for layer in before for leaf in before[layer])


# Who is told of whom (with a small network: only styles are weighed)


@pytest.mark.parametrize(("received", "down"), [(0, 0), (1, 1), (3, 3)])
def test_as_many_styles_come_down_as_are_received(received: int, down: int) -> None:
    transcript = crossed("stablefdg", 4, "small_resnet", received=received)
    style = 4 * 4 * 32  # small_resnet: 32 channels
    for name in (f"client-{i}" for i in range(4)):
        told = [record for record in relayed(transcript) if record.receiver == name]
        assert sum(record.nbytes for record in told) == down * style
        assert len({record.origin for record in told} - {name}) == down
        assert sum(record.origin == name for record in relayed(transcript)) == down
        models = [r for r in transcript.records if r.kind == "model_state" and name in (r.sender, r.receiver)]
        assert [(r.sender == SERVER) for r in models] == [True, False]


def test_only_participants_share_styles() -> None:
    for released, sharing in ((False, 2), (True, 4)):
        transcript = crossed("stablefdg", 4, "small_resnet", participants=2, code_compat=released, p=0.0)
        records = transcript.records
        assert len({r.sender for r in records if r.verb == "style" and r.receiver == SERVER}) == sharing
        assert sum(r.kind == "style_statistics" and not r.relayed for r in records) == sharing
        trained = {r.sender for r in records if r.verb == "fit" and r.receiver == SERVER}
        assert len(trained) == 2
        assert {r.receiver for r in relayed(transcript)} == {r.origin for r in relayed(transcript)} == trained


# LSI at the paper's size: ResNet-50, p = 512, h = 1024

LSI_SHORT = {
    "pretrain_epochs": 1,
    "inversion_steps": 1,
    "inversion_batches": 1,
    "translator_steps": 1,
    "inversion_labels": "marginal",
}
MODEL, IMPORTANCE, HEAD, TRANSLATOR = 98_459_852, 98_242_844, 18_468, 8_439_808


@pytest.mark.parametrize(
    ("classes", "model", "importance", "head"),
    [(7, MODEL, IMPORTANCE, 14_364 + 4_104), (65, 98_578_868, 98_361_860, 133_380 + 4_104)],
)
def test_a_model_of_lsi_has_54_layers_of_statistics(classes: int, model: int, importance: int, head: int) -> None:
    built: Any = Method.named("lsi")().model(federation(3, classes, "resnet50"), generator(0))
    state = ModelState.of(built, SERVER, 0)
    assert state.nbytes == model
    assert 4 * sum(p.numel() for p in built.parameters()) == importance
    assert sum(tensor.nbytes for tensor in built.head.state_dict().values()) == head
    statistics = state.bn_statistics()
    assert len(statistics) == 54
    numbers = [layer[leaf].numel() for layer in statistics.values() for leaf in ("running_mean", "running_var")]
    assert sum(numbers) == 54_144


@pytest.mark.parametrize("network", ["small_resnet", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_bytes_of_a_run_of_lsi(
    network: str,
) -> None:
    """What does not depend on the backbone is of the paper's size in both."""
    transcript = crossed("lsi", 3, network, size=16, lr=1e-5, participants=1, **LSI_SHORT)
    built: Any = Method.named("lsi")().model(federation(3, network=network), generator(0))
    model, importance = ModelState.of(built, SERVER, 0).nbytes, 4 * sum(p.numel() for p in built.parameters())
    assert network != "resnet50" or (model, importance) == (MODEL, IMPORTANCE)
    names = [f"client-{i}" for i in range(3)]
    (fitted,) = {r.sender for r in transcript.records if r.verb == "fit"}
    assert lines(transcript) == {
        **{("pretrain", "model_state", SERVER, name, model): 1 for name in names},
        **{("pretrain", "classifier_head", name, SERVER, HEAD): 1 for name in names},
        **{("pretrain", "label_marginal", name, SERVER, 28): 1 for name in names},
        **{("pretrain", "sample_count", name, SERVER, 8): 1 for name in names},
        **{("adopt", "representation_translator", SERVER, name, TRANSLATOR): 1 for name in names},
        ("fit", "importance_weights", fitted, SERVER, importance): 1,
        ("fit", "model_state", fitted, SERVER, model): 1,
        **{("validate", "model_state", SERVER, name, model): 1 for name in names},
    }
    rows = {(row.kind, row.verb, row.sender): row for row in ledger(transcript.records, {})}
    sent = rows["representation_translator", "adopt", "server"]
    assert (sent.level, sent.samples_behind, sent.visible_to) == ("group", 3 + 4 + 5, ("server", "client"))
    assert rows["classifier_head", "pretrain", "client"].shape == "5 tensors, 4,616 numbers"  # 3,591 + 1,024 + counter


def test_bytes_of_a_later_round_of_lsi() -> None:
    world = federation(2, network="small_resnet")
    data = {name: held(name, 6) for name in world.clients}
    data = {n: ClientData(n, d.images[:3], d.labels[:3], d.images[3:], d.labels[3:], 7) for n, d in data.items()}
    short = {"latent_dim": 16, "hidden": 8, "rounds": 3, "local_epochs": 1, "lr": 0.01, "normaliser": "clients"}
    wire = Wire(dict.fromkeys(world.clients, 3), Defense.named("none")(), Transcript(keep="small"))
    method: Any = Method.named("lsi").configured(LSI_SHORT | short)
    LocalEngine(2).run(method, world, data, wire)
    built: Any = method.model(world, generator(0))
    model, weights = ModelState.of(built, SERVER, 0).nbytes, 4 * sum(p.numel() for p in built.parameters())
    later = [(r.verb, r.kind, r.sender == SERVER, r.nbytes) for r in wire.transcript.records if r.round == 1]
    assert Counter(later) == {
        ("fit", "model_state", True, model): 2,
        ("fit", "validation_metrics", False, 8): 2,
        ("fit", "importance_weights", False, weights): 2,
        (
            "weigh",
            "importance_weights",
            True,
            weights,
        ): 4,  # its own, and the sum: of two clients, each learns the other's
        ("weigh", "model_state", False, model): 2,
    }
    assert all(record.receiver == record.origin for record in relayed(wire.transcript))


# hFedF and pFedHN: models of their own for clients, and pseudo-gradients back


@pytest.mark.parametrize("spec", ["hfedf", "pfedhn"])
@pytest.mark.parametrize(("classes", "nbytes"), [(7, 3_712_796), (65, 3_772_420), (5, 3_710_740)])
def test_bytes_of_a_client_model_of_hfedf(classes: int, nbytes: int, spec: str) -> None:
    state = ModelState.of(Method.parse(spec).model(federation(3, classes), generator(0)), SERVER, 0)
    assert state.nbytes == nbytes
    assert state.bn_statistics() == {}


@pytest.mark.parametrize("spec", ["hfedf", "pfedhn"])
def test_bytes_of_a_round_of_hfedf(spec: str) -> None:
    transcript, model = crossed(spec, 3, rounds=2, hidden=4, local_steps=1), 3_712_796
    names = [f"client-{i}" for i in range(3)]
    assert lines(transcript) == {
        **{("fit", "model_state", SERVER, name, model): 2 for name in names},
        **{("fit", "model_update", name, SERVER, model): 2 for name in names},
    }
    assert relayed(transcript) == []
    for record in transcript.records:
        assert sum(torch.Size(shape).numel() for shape in record.shapes.values()) == 928_199
        assert set(record.dtypes.values()) == {"float32"}
    sent_as = Method.named(spec)().disclosure().sent_as
    rows = {(row.kind, row.sender, row.to): row for row in ledger(transcript.records, sent_as)}
    assert {where: (row.per_client_per_round_bytes, row.times) for where, row in rows.items()} == {
        ("client_model", "server", "client"): (model, 6),
        ("model_update", "client", "server"): (model, 6),
    }
    assert rows["model_update", "client", "server"].samples_behind == 3
    assert rows["client_model", "server", "client"].samples_behind == 3 + 4 + 5


@pytest.mark.parametrize(("e", "down"), [(1, 53_968), (8, 4 * (4_097 * 8 + 9_395))])
def test_embeddings_made_of_data_cross_once(e: int, down: int) -> None:
    method: Any = Method.named("hfedf").configured(
        {"embedding": "autoencoder", "embedding_dim": e, "hidden": 4, "autoencoder_epochs": 1}
    )
    world = federation(3)
    ask = next(method.server(world, generator(0)))
    assert (ask.verb, set(ask.messages)) == ("embed", set(world.clients))
    data = replace(held("client-0", 5), held_out_pixels=torch.rand(2, 3, 32, 32), held_out_labels=torch.zeros(2).long())
    (embedding,) = method.client(world, data, generator(1)).embed(ask.messages["client-0"])
    assert [artifact.nbytes for artifact in ask.messages["client-0"]] == [down]
    assert embedding.nbytes == 4 * e
    disclosed = method.disclosure()
    assert (disclosed.releases("client_embedding"), disclosed.releases("model_update")) == (1, 200)
    assert Method.named("hfedf")().disclosure().releases("client_embedding") == 0
