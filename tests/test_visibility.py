"""Defenses in what others see: sums, anonymous answers, medians, thresholds; and what no longer leaves a client."""

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import fit
from factories import network, refused, run, run_afresh, seeded, small
from factories_core import draft, model_state, sample_count, style
from factories_wire import collect, up
from scipy import stats
from torch import nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import STATISTICS, TOLD, MaskedUpload, ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Combined, Defense, defended
from fdgpriv.evaluation.units import attacked_clients
from fdgpriv.federation.request import Request
from fdgpriv.federation.secure_sum import Ring, masked_rows, secure_mean, sum_of
from fdgpriv.federation.upload import ClientFailed, ExpectedArtifact
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.simulation.honest_mean import honest_means

interpolation_style: Any = import_module("fdgpriv.methods._interpolation").interpolation_style
NAMES = ("a", "b", "c", "d")
COUNTS = {"a": 10, "b": 30, "c": 60}


def model_messages(**counts: int) -> dict[str, Message]:
    """Random models of clients with these numbers of samples, or without numbers for a count of 0."""
    found: dict[str, Message] = {}
    for i, (client, count) in enumerate(counts.items()):
        weight = torch.randn(5, 3, generator=seeded(i))
        message: Message = [model_state(client, 0, weight=weight, seen=torch.tensor(7 + i))]
        found[client] = [*message, sample_count(client, 0, count)] if count else message
    return found


# Secure aggregation


def test_masks_cancel_exactly() -> None:
    plain = {name: seeded_row(i) for i, name in enumerate(NAMES)}
    masked, _ = masked_rows(plain, seeded(3))
    expected = [sum(int(plain[name][j]) for name in NAMES) % 2**64 for j in range(50)]
    assert [int(value) for value in sum_of(list(masked.values()))][:50] == expected
    assert all((masked[name] != plain[name]).all() for name in NAMES)
    one_missing = sum_of([masked[name] for name in NAMES[:3]])
    assert (one_missing != sum_of([plain[name] for name in NAMES[:3]])).all()


def seeded_row(seed: int) -> Ring:
    return np.random.default_rng(seed).integers(0, 2**64, 4000, dtype=np.uint64)


def test_a_masked_upload_is_uniform_whatever_is_in_it() -> None:
    rows = {name: np.full(4000, 12345, dtype=np.uint64) for name in NAMES}
    for row in masked_rows(rows, seeded(5))[0].values():
        assert stats.kstest(row.astype(np.float64) / 2.0**64, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(row[:-1].astype(float), row[1:].astype(float))[0, 1]) < 0.07  # 4 standard errors


def test_the_weighted_mean_is_computed_from_the_sum() -> None:
    messages = model_messages(**COUNTS)
    found = secure_mean(messages, seeded(1))
    mean, count = found.means
    states = [message[0].tensors() for message in messages.values()]
    expected = sum(n * state["weight"].double() for n, state in zip((10, 30, 60), states, strict=True)) / 100
    assert (mean.tensors()["weight"].double() - expected).abs().max() < 1e-6
    assert int(mean.tensors()["seen"]) == int((10 * 7 + 30 * 8 + 60 * 9) / 100)
    assert int(count.tensors()["count"]) == 100
    assert {one.kind for uploads in found.uploads.values() for one in uploads} == {MaskedUpload.kind}
    told, _ = secure_mean({c: [m[0], sample_count(c, 0, 1)] for c, m in messages.items()}, seeded(1), (), COUNTS).means
    assert torch.equal(told.tensors()["weight"], mean.tensors()["weight"])  # by what the server says of their sizes
    (unweighted,) = secure_mean(model_messages(a=0, b=0), seeded(1)).means
    two = [state["weight"].double() for state in states[:2]]
    assert (unweighted.tensors()["weight"].double() - (two[0] + two[1]) / 2).abs().max() < 1e-6


def test_overflowing_sums_are_refused() -> None:
    huge = {name: [model_state(name, 0, weight=torch.full((2,), 3e11))] for name in "ab"}
    with pytest.raises(ValueError, match=r"want sums below 2\*\*39, got values up to 3e\+11 of 2 clients"):
        secure_mean(huge, seeded(0))
    other: Mapping[str, Message] = {"a": [model_state("a")], "b": [sample_count("b")]}
    with pytest.raises(ValueError, match="want answers of the same kinds and shapes"):
        secure_mean(other, seeded(0))


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_secure_sums_train_the_same_model(weights: str) -> None:
    method = small("fedavg", rounds=2, weights=weights)
    bare, summed = run(method, 6, 9, 4), run(method, 6, 9, 4, defense="secure_aggregation")
    for name, tensor in bare.state.items():
        torch.testing.assert_close(summed.state[name], tensor, atol=2e-5, rtol=1e-5)
    received = [record.kind for record in summed.transcript.records if record.receiver == SERVER]
    assert set(received) == {MaskedUpload.kind}
    assert len(received) == 2 * 3 * (2 if weights == "samples" else 1)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_colluders_leave_the_sum_of_the_others(weights: str) -> None:
    """With all but one colluding, the last client's own model is seen."""
    method = small("fedavg", rounds=2, weights=weights)
    bare = run(method, 6, 9, 4)
    own = {r.origin: a for r, a in bare.transcript.of_kind(ModelState.kind) if r.receiver == SERVER}
    counts = {r.origin: int(a.count) for r, a in bare.transcript.of_kind("sample_count") if isinstance(a, SampleCount)}
    assert len(own) == 3
    for colluders in (1, 2):
        means = honest_means(
            run_afresh(method, 6, 9, 4, defense=f"secure_aggregation:colluders={colluders}").transcript
        )
        mean, honest = means[max(means)]
        assert honest == tuple(sorted(own)[: 3 - colluders])
        weight_of = {name: counts.get(name, 1) for name in honest}
        for tensor, value in mean.state.items():
            if value.is_floating_point():
                expected = sum(weight_of[name] * own[name].tensors()[tensor].double() for name in honest)
                torch.testing.assert_close(value.double(), expected / sum(weight_of.values()), atol=2e-5, rtol=1e-5)


def test_without_colluders_no_partial_sum_is_known() -> None:
    transcript = run(small("fedavg", rounds=2), 6, 9, 4, defense="secure_aggregation").transcript
    assert not honest_means(transcript)
    assert all(record.verb != TOLD for record in transcript.records)


def test_colluders_alone_have_no_honest_mean() -> None:
    method = small("fedavg", rounds=2, participants=2)
    assert not honest_means(run_afresh(method, 6, 9, 4, defense="secure_aggregation:colluders=2").transcript)


def test_sums_that_hide_nothing_are_refused() -> None:
    for participants, colluders, clients, reason in (
        (None, 4, "abcde", None),
        (None, 4, "abcd", "want fewer colluders than the 4 clients of a sum, got 4"),
        (3, 2, "abcde", None),
        (3, 3, "abcde", "want fewer colluders than the 3 clients of a sum, got 3"),
        (1, 0, "abcde", "want sums of at least 2 participants, got 1: it hides nothing"),
    ):
        method = small("fedavg", participants=participants)
        _, defense = defended(method, f"secure_aggregation:colluders={colluders}")
        with nullcontext() if reason is None else refused(reason):
            defense.check_sizes(dict.fromkeys(clients, 9))


def test_statistics_are_summed_with_their_weights() -> None:
    """LSI's server averages recomputed BatchNorm statistics by the sizes that clients told it before; of the counters it
    keeps the largest, which a sum does not tell.
    """
    method = small("lsi", rounds=1, recalibrate_bn=True, select="last")
    bare, summed = (
        run_afresh(method, 6, 4, 20, build=network(1, 2, 1), defense=defense)
        for defense in ("none", "secure_aggregation:partial=true")
    )
    assert "masked_upload" in {record.kind for record in summed.transcript.records}
    for name, tensor in bare.state.items():
        if not tensor.is_floating_point():
            continue
        torch.testing.assert_close(summed.state[name], tensor, atol=2e-5, rtol=1e-5)


# Anonymous senders


def test_shuffled_answers_have_other_names() -> None:
    wire = Wire(dict.fromkeys(NAMES, 5), Defense.parse("shuffle"))
    wire.masks = seeded(2)
    answers = collect(
        wire,
        Request("style", {name: [] for name in NAMES}),
        {name: [draft(client=name, round=0, scale=i + 1.0)] for i, name in enumerate(NAMES)},
        {name: seeded(0) for name in NAMES},
    )
    senders = [answers[name][0].client for name in NAMES]
    assert sorted(senders) == sorted(NAMES)
    assert senders != list(NAMES)


def test_rounds_of_a_client_are_not_combined_by_name() -> None:
    assert Defense.parse("shuffle").anonymous
    assert not Defense.parse("none").anonymous


# Medians in place of styles, and thresholds


def shared_styles(defense: str, sizes: Mapping[str, int]) -> Wire:
    wire = Wire(sizes, Defense.parse(defense))
    asked = Request("style", {name: [] for name in sizes})
    styles = {name: [style(name, 0, mean=torch.arange(4.0) + 10 * i)] for i, name in enumerate(sizes)}
    collect(wire, asked, styles, {name: seeded(0) for name in sizes})
    return wire


def test_a_client_receives_median_and_own_style() -> None:
    wire = shared_styles("interpolate", dict.fromkeys(NAMES, 9))
    sent = [style(name, 0) for name in ("a", "c")]
    own, other = wire.down("a", "fit", sent)
    assert torch.equal(own.tensors()["mean"], sent[0].mean)
    middle = np.median([np.arange(4.0) + 10 * i for i in range(4)], axis=0)
    assert other.client == SERVER
    assert other.tensors()["mean"].tolist() == middle.tolist()
    last = wire.transcript.records[-1]
    assert (last.origin, last.clients, last.samples) == (SERVER, 4, 36)
    with pytest.raises(ValueError, match=r"interpolate.least: want styles of at least 3 clients, got 2"):
        shared_styles("interpolate", {"a": 9, "b": 9}).down("a", "fit", [style("b")])


def test_small_clients_withhold_their_statistics() -> None:
    wire = shared_styles("min_clients:samples=5", {"a": 9, "b": 4, "c": 5})
    assert [record.origin for record in wire.transcript.records] == ["a", "c"]
    kept = up(wire, "b", "fit", [model_state("b"), sample_count("b")], seeded(0))
    assert [artifact.kind for artifact in kept] == ["model_state", "sample_count"]
    few = shared_styles("min_clients:samples=5,clients=3", {"a": 9, "b": 4, "c": 5})
    with pytest.raises(ValueError, match=r"min_clients.clients: want at least 3 that shared, got 2"):
        few.down("a", "fit", [style("c")])


def test_statistics_of_too_few_are_not_released() -> None:
    """With one client that shared, the interpolation style would be its own."""
    for sharing, released in (({"a": 9, "b": 4, "c": 5}, True), ({"a": 9, "b": 4, "c": 4}, False)):
        wire = shared_styles("min_clients:samples=5", sharing)
        made = interpolation_style(
            [one for one in wire.latest["style_statistics"].values() if isinstance(one, StyleStatistics)]
        )
        with nullcontext() if released else refused("want at least 2 that shared, got 1"):
            assert len(wire.down("b", "adopt", [made, model_state(SERVER)])) == 2
        assert wire.down("b", "fit", [model_state(SERVER)])  # no statistic


def test_an_unreachable_threshold_is_refused() -> None:
    """Before training."""
    defense = Defense.parse("min_clients")
    defense.check_sizes({"a": 20, "b": 20, "c": 4})
    with refused("got 1 of 3: nothing would be released"):
        defense.check_sizes({"a": 20, "b": 19, "c": 4})


def test_no_interpolation_style_is_made_of_no_style() -> None:
    with pytest.raises(ValueError, match="want the style of at least one client, got none"):
        interpolation_style([])


def test_shadows_below_the_threshold_are_not_attacked(digits: Dataset) -> None:
    found = fit(digits.few(64), clients=3)
    shadows = found.population.shadows
    (size,) = {len(data) for data in shadows.values()}
    for attacked in (True, False):
        _, defense = defended(found.method, f"min_clients:samples={size if attacked else size + 1}")
        targets = replace(found, defense=defense).evaluator().artifact_series
        units = {kind: {*attacked_clients(found.population, target)} for kind, target in targets.items()}
        assert bool(units["style_statistics"] & {*shadows}) is attacked
        assert units["model_state"] & {*shadows}  # is shared by clients of any size


def test_stablefdg_trains_with_withheld_styles() -> None:
    ran = run_afresh(small("stablefdg", rounds=2), 6, 4, 9, build=network(1, 2, 1), defense="min_clients:samples=5")
    styles = [record for record in ran.transcript.records if record.kind == StyleStatistics.kind]
    assert {record.origin for record in styles} == {"client-0", "client-2"}
    assert {record.receiver for record in styles if record.sender == SERVER} == {"client-0", "client-1", "client-2"}


def test_without_accuracies_the_last_is_selected() -> None:
    """A client tells the accuracy of what it was sent: here nobody tells any."""
    runs = [
        run_afresh(small("fedavg", rounds=2, selection=how), 4, 4, 4, build=network(1, 2, 1), defense=defense)
        for how, defense in (("validation", "min_clients:samples=5"), ("last", "none"))
    ]
    assert not [record for record in runs[0].transcript.records if record.kind == "validation_metrics"]
    for one, other in zip(runs[0].model.state_dict().values(), runs[1].model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


# What clients no longer share


def test_a_style_is_sent_once_and_reused() -> None:
    method = small("stablefdg", rounds=3)
    ran = run_afresh(method, 6, 4, 9, build=network(1, 2, 1), defense="send_once")
    styles = [record for record in ran.transcript.records if record.kind == StyleStatistics.kind]
    assert [record.round for record in styles if record.receiver == SERVER] == [0, 0, 0]
    assert len([record for record in styles if record.sender == SERVER]) == 3 * 3
    own, _ = defended(method, "send_once")
    assert own.disclosure().releases(StyleStatistics.kind) == 1
    assert method.disclosure().releases(StyleStatistics.kind) == 3


@pytest.mark.parametrize("name", ["fedavg", "stablefdg", "lsi"])
def test_batchnorm_statistics_stay_or_do_not_change(name: str) -> None:
    method = small(name, rounds=2)
    local = run_afresh(method, 6, 4, 9, build=network(1, 2, 1), defense="bn_local").transcript
    assert (
        not [key for record in local.records for key in record.shapes if key.endswith(STATISTICS[:2])] or name == "lsi"
    )
    uploads = [kept for _, kept in local.of_kind(ModelState.kind) if kept is not None]
    assert not [key for state in uploads for key in state.tensors() if key.endswith(STATISTICS)]
    frozen = run_afresh(method, 6, 4, 9, build=network(1, 2, 1), defense="bn_frozen").transcript
    states = [kept.tensors() for _, kept in frozen.of_kind(ModelState.kind) if kept is not None]
    for key in states[0]:
        if key.endswith(STATISTICS[:2]) and not key.startswith("head"):
            assert all(torch.equal(state[key], states[0][key]) for state in states)


# Applicability and combination

NOT_APPLICABLE = {
    ("secure_aggregation", "hfedf"): "not applicable to hfedf, whose server needs each client's model update",
    ("secure_aggregation", "ccst"): "want a server that needs only sums; ccst's needs each client's style statistics",
    ("secure_aggregation", "pardon"): "secure_aggregation:partial=true hides the rest",
    ("shuffle", "hfedf"): "whose model_update it receives",
    ("shuffle", "lsi"): "whose classifier_head it receives",
    ("shuffle", "lsi:invariance=0"): "whose sample_count it receives",
    ("interpolate", "fedavg"): "whose server relays no client's style",
    ("interpolate", "pardon"): "whose server relays no client's style",
    ("min_clients", "fedavg"): "which shares no statistics",
    ("min_clients", "hfedf:embedding=autoencoder"): "whose server needs each client's client_embedding",
    ("min_clients", "ccst:style=single"): "want 1 for ccst, which shares each image's style_statistics; got 20",
    ("send_once", "ccst"): "which does not share a style repeatedly",
    ("bn_local", "hfedf"): "not applicable to hfedf",
    ("bn_frozen", "hfedf"): "not applicable to hfedf",
    ("bn_frozen", "pardon:buffers=freeze"): "has no effect: pardon.buffers is freeze already",
    ("bn_local", "stablefdg:style_mode=eval"): "want train with buffers=keep_local",
}


def test_what_is_not_applicable_says_why() -> None:
    for (defense, method), reason in NOT_APPLICABLE.items():
        with refused(f"^{defense}") as caught:
            defended(Method.parse(method), defense)
        assert reason in str(caught.value)


def test_defenses_are_joined_in_the_order_given() -> None:
    joined = Defense.parse("send_once+shuffle+min_clients:samples=7")
    assert isinstance(joined, Combined)
    assert [part.name() for part in joined.parts] == ["send_once", "shuffle", "min_clients"]
    assert joined.spec() == "send_once+shuffle+min_clients:samples=7"
    assert joined.anonymous
    assert not joined.aggregates
    assert joined.withholds(style("a"), 6)
    assert "no finite epsilon" in joined.guarantee().statement.lower()
    with pytest.raises(ValueError, match="want each defense once in a combination, got shuffle\\+shuffle"):
        Defense.parse("shuffle+shuffle")
    with pytest.raises(ValueError, match="want one of the defenses"):
        Defense.parse("shuffle+nosuch")


def test_sums_exclude_withholding() -> None:
    both = "secure_aggregation:partial=true+min_clients:samples=5"
    with pytest.raises(ValueError, match=r"want sums or min_clients: sums need every client's validation_metrics"):
        defended(small("fedavg", selection="validation"), both)
    defended(small("pardon", selection="last"), both)  # styles are not summed


def test_bn_defenses_need_batchnorm() -> None:
    for defense in ("bn_local", "bn_frozen"):
        part = Defense.parse(defense)
        part.check_model(nn.BatchNorm2d(3))
        with refused(f"^{defense}: has no effect: the network that is trained has no BatchNorm"):
            part.check_model(nn.GroupNorm(1, 3))


def test_a_client_may_not_withhold_by_itself() -> None:
    wire = Wire({"a": 9}, Defense.parse("min_clients:samples=5"))
    with pytest.raises(ClientFailed, match="want 1 style_statistics, got 0"):
        up(wire, "a", "style", [], seeded(0), 0, [ExpectedArtifact(style("a"))])


@pytest.mark.parametrize(
    ("settings", "sizes", "defense"),
    [
        (
            {"rounds": 6, "participants": 2},
            (6, 4, 4, 9),
            "min_clients:samples=5",
        ),  # two may withhold theirs: none is sent
        ({"rounds": 6, "participants": 2}, (6,) * 6, "send_once"),  # a style of an earlier round is all that is sent
        ({"rounds": 6, "participants": 2, "resend_styles": False}, (6,) * 6, "none"),
    ],
)
def test_stablefdg_s_clients_answer_in_their_round(
    settings: dict[str, Any], sizes: tuple[int, ...], defense: str
) -> None:
    transcript = run_afresh(small("stablefdg", **settings), *sizes, build=network(1, 2, 1), defense=defense).transcript
    sent = [record.round for record, artifact in transcript.of_kind("model_state") if record.sender != SERVER]
    assert Counter(sent) == dict.fromkeys(range(settings["rounds"]), settings.get("participants", len(sizes)))
