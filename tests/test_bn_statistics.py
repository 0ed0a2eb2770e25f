"""BatchNorm statistics that clients take anew, as what is examined: how they are made, and what is read from them."""

from collections.abc import Mapping
from importlib import import_module

import numpy as np
import pytest
import torch
from conftest import Fitted, fit, shortened

from fdgpriv.artifact import ModelState
from fdgpriv.exam.marks import Marks, examine
from fdgpriv.federation import Dataset, generator
from fdgpriv.roles import Attack
from fdgpriv.states import BatchNormStatistics
from fdgpriv.subjects import Holding, StatisticsCraft, Subject
from fdgpriv.threat import threat

HASTE = {"rounds": "2", "lr": "0.03", "batch_size": "8", "invariance": "0", "pretrain_epochs": "1"}
KIND = BatchNormStatistics.kind


@pytest.fixture(scope="module")
def renewed(digits: Dataset) -> Fitted:
    """LSI without its translator, two rounds, four clients to a domain of some 17 images each."""
    return fit(shortened(digits, 100), clients=12, method="lsi", settings=HASTE)


def subject_of(fitted: Fitted) -> tuple[Subject[StatisticsCraft], StatisticsCraft]:
    subject = fitted.proctor().subject(KIND)
    assert isinstance(subject.craft, StatisticsCraft)
    return subject, subject.craft  # type: ignore[return-value]


def holding(fitted: Fitted, name: str) -> Holding:
    data = fitted.population.data(name)
    return Holding(data.images, data.labels, subject_of(fitted)[0].sent[name])


# The craft


def test_they_are_taken_under_the_averaged_model_and_not_the_one_that_was_trained(renewed: Fitted) -> None:
    subject, _ = subject_of(renewed)
    assert {id(model) for model in subject.sent.values()} == {id(renewed.transcript.model_sent(1, "recalibrate"))}
    assert renewed.transcript.model_sent(1, "recalibrate") is not renewed.transcript.model_sent(1)
    assert set(subject.sent) == set(renewed.population.clients) | set(renewed.population.shadows)


def test_of_one_batch_the_wire_s_statistics_are_made_again_whatever_the_draws(digits: Dataset) -> None:
    whole = fit(shortened(digits, 64), clients=3, method="lsi", settings={**HASTE, "batch_size": "64"})
    subject, craft = subject_of(whole)
    for name in subject.clients:
        own = holding(whole, name)
        made = craft.make(own, torch.arange(len(own.images)), generator(5))
        assert set(made.tensors()) == set(subject.wire[name].tensors())
        for key, tensor in subject.wire[name].tensors().items():
            torch.testing.assert_close(made.tensors()[key], tensor, atol=1e-4, rtol=1e-4)


def test_they_are_means_over_batches_of_moments_in_training(renewed: Fitted) -> None:
    """Against each layer's inputs, written out; of one image the head's layer keeps what was sent."""
    subject, craft = subject_of(renewed)
    own = holding(renewed, subject.clients[0])
    assert own.sent is not None
    model, seen = craft.network().train(), []
    own.sent.load_into(model)
    name = [key for key in subject.wire[subject.clients[0]].tensors() if key.endswith("running_mean")][3]
    name = name.removesuffix(".running_mean")
    layer = dict(model.named_modules())[name]
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    index = torch.tensor([3, 5, 7])
    with torch.no_grad():
        model(own.images[index])
    made = craft.make(own, index, generator(2)).tensors()
    torch.testing.assert_close(made[f"{name}.running_mean"], seen[0].mean(dim=(0, 2, 3)))
    torch.testing.assert_close(made[f"{name}.running_var"], seen[0].var(dim=(0, 2, 3)))
    alone = craft.make(own, index[:1], generator(2)).tensors()
    assert torch.equal(alone["head.norm.running_mean"], own.sent.state["head.norm.running_mean"])


def test_an_artifact_stands_in_one_row_and_comes_back_from_it(renewed: Fitted) -> None:
    subject, craft = subject_of(renewed)
    for name, artifact in subject.wire.items():
        back = craft.unflat(craft.flat(artifact, subject.sent[name]), subject.sent[name]).tensors()
        assert list(back) == list(artifact.tensors())
        for key, tensor in artifact.tensors().items():
            assert back[key].dtype == tensor.dtype
            torch.testing.assert_close(back[key], tensor, atol=1e-6, rtol=1e-5)
    row = torch.full_like(craft.flat(artifact, subject.sent[name]), -1.0)
    assert all(
        float(t.min()) >= 0 for key, t in craft.unflat(row, subject.sent[name]).tensors().items() if "mean" not in key
    )


def test_what_was_sent_is_the_origin_of_a_reader_s_vector(renewed: Fitted) -> None:
    subject, craft = subject_of(renewed)
    sent = subject.sent[subject.clients[0]]
    kept = {name: t for name, t in sent.state.items() if name.rpartition(".")[2].startswith(("running", "num"))}
    nothing = BatchNormStatistics(client="a", round=1, state=kept)
    assert float(craft.vector(nothing, sent).abs().max()) < 1e-5
    assert float(craft.vector(subject.wire[subject.clients[0]], sent).abs().max()) > 0.1


@pytest.mark.parametrize("role", ["client", "third_party"])
def test_only_the_server_sees_them(renewed: Fitted, role: str) -> None:
    subject, _ = subject_of(renewed)
    assert subject.refused(threat("server")) is None
    assert subject.refused(threat(role)) == f"the {role} is not granted has_bn"
    assert subject.earlier.keys() == subject.wire.keys()


def test_there_is_no_subject_where_none_crossed_or_its_model_is_not_kept(renewed: Fitted, tiny: Dataset) -> None:
    plain = fit(tiny, clients=3, method="lsi", settings={**HASTE, "recalibrate_bn": "false"})
    assert KIND not in plain.proctor().subjects
    bare = fit(tiny, clients=3, method="lsi", settings=HASTE, keep="small")
    assert KIND not in bare.proctor().subjects


# What is read from them


def examined(fitted: Fitted, name: str, per_client: Mapping[int, int], **settings: object) -> dict[int | None, Marks]:
    proctor = fitted.proctor()
    proctor.per_client = per_client
    attack = Attack.named(name).configured(settings)
    subject = proctor.subject(KIND)
    assert attack.refuses(subject) is None
    sizes = tuple(size for size in attack.sizes_on(subject) if size is None or size in per_client)
    draws = attack.family == "reconstruction"
    sittings = proctor.sittings(subject, threat("server"), sizes, reconstruction=draws, asks_size=attack.asks_size)
    return examine(attack, sittings, (1,) if draws else (), generator(1))[0]


def mean(marks: Marks, name: str = "attack") -> float:
    return float(np.mean(marks.headline[name]))


CONTROLS = ("noise", "mean_image", "random_style", "other_client")


def test_the_domain_is_read_from_them_and_not_from_random_ones(renewed: Fitted) -> None:
    marks = examined(renewed, "domain_inference", {1: 2}, practice_costly=15)
    assert min(mean(marks[1]), mean(marks[None])) > 0.9
    assert max(mean(marks[None], name) for name in ("noise", "mean_image", "random_style", "other_domain")) < 0.6


def test_the_label_of_one_image_is_read_from_them(renewed: Fitted) -> None:
    marks = examined(renewed, "label_histogram", {1: 1}, practice_costly=80)
    assert mean(marks[1]) + 0.1 < min(mean(marks[1], name) for name in CONTROLS)


def test_counters_tell_the_client_s_size_to_a_batch(renewed: Fitted) -> None:
    marks = examined(renewed, "client_size", {1: 1, 5: 1})
    assert (
        mean(marks[1]) == 14
    )  # of one image: one batch of 8, as of up to 15 images, of which 15 is nearest to the usual
    assert max(marks[None].headline["attack"]) < 8 / 16
    assert mean(marks[1]) < min(mean(marks[1], name) for name in ("other_client", "mean_image"))


def test_one_image_is_drawn_from_them_and_nothing_from_anybody_else_s(renewed: Fitted) -> None:
    marks = examined(renewed, "deep_inversion", {1: 1}, steps=10)
    assert mean(marks[1]) > 1 + max(mean(marks[1], name) for name in CONTROLS)
    assert mean(marks[1], "random_style") < mean(marks[1], "mean_image") + 0.5


def test_one_image_is_found_among_a_hundred_and_by_nobody_else_s_statistics(renewed: Fitted) -> None:
    marks = examined(renewed, "identification", {1: 1}, practice_costly=30)
    assert mean(marks[1]) > 0.9
    assert max(mean(marks[1], name) for name in CONTROLS) < 0.2


def test_what_each_image_alone_gives_is_what_a_client_with_it_shares(renewed: Fitted) -> None:
    """Many at once against one after the other; and of several the means are averages."""
    subject, craft = subject_of(renewed)
    proctor = renewed.proctor()
    (sitting,) = proctor.sittings(proctor.subject(KIND), threat("server"), (None,), reconstruction=False)
    own = holding(renewed, subject.clients[0])
    found = import_module("fdgpriv.attacks._alone").alone(sitting.view, own.images[:3], own.sent)
    for image in range(3):
        made = craft.make(own, torch.tensor([image]), generator(0), defended=False)
        wanted = craft.vector(made, own.sent)[: found.shape[1]]
        torch.testing.assert_close(found[image], wanted, atol=1e-3, rtol=1e-3)
    means = craft.vector(craft.make(own, torch.arange(3), generator(0)), own.sent)[: found.shape[1] // 2]
    torch.testing.assert_close(found.mean(0)[: len(means)], means, atol=1e-3, rtol=1e-3)


def test_clients_are_known_again(renewed: Fitted) -> None:
    marks = examined(renewed, "linkage", {})
    assert mean(marks[None]) > 0.6 > mean(marks[None], "other_client") + 0.2


def test_a_model_on_the_wire_is_not_taken_for_them(renewed: Fitted) -> None:
    """Both are examined, each by its own craft."""
    assert {KIND, ModelState.kind} <= set(renewed.proctor().subjects)
    assert {KIND, ModelState.kind} <= set(Attack.named("deep_inversion").reads)
