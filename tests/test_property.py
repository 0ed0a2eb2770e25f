"""Attacks on properties of clients where reading them takes a training: what they are told, and what they tell."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted, fit, shortened
from sklearn.covariance import ledoit_wolf_shrinkage

from fdgpriv.artifact import ModelState, SampleCount
from fdgpriv.exam import Item, Sitting
from fdgpriv.exam.marks import Marks, examine
from fdgpriv.federation import Dataset, generator
from fdgpriv.roles import Attack, Method
from fdgpriv.threat import threat

probing: Any = import_module("fdgpriv.attacks._probe")
client_size: Any = import_module("fdgpriv.attacks.client_size")


@pytest.fixture(scope="module")
def averaged(digits: Dataset) -> Fitted:
    """FedAvg after two rounds, in batches of 4, twice over: four clients to a domain."""
    settings = {"rounds": "2", "local_epochs": "2", "batch_size": "4"}
    return fit(shortened(digits, 160), clients=12, method="fedavg", settings=settings)


def examined(fitted: Fitted, attack: Attack, kind: str, per_client: Mapping[int, int]) -> dict[int | None, Marks]:
    proctor = fitted.proctor()
    proctor.per_client = per_client
    subject = proctor.subject(kind)
    sizes = tuple(size for size in attack.sizes_on(subject) if size is None or size in per_client)
    sittings = proctor.sittings(subject, threat("server"), sizes, reconstruction=False, asks_size=attack.asks_size)
    return examine(attack, sittings, (), generator(1))[0]


def mean(marks: Marks, name: str = "attack") -> float:
    return float(np.mean(marks.headline[name]))


# Domain and labels, of a trained model


def test_the_domain_is_read_from_what_training_on_it_changed(averaged: Fitted) -> None:
    attack = Attack.named("domain_inference").configured({"practice_costly": 12})
    assert attack.sizes_on(averaged.proctor().subject("model_state")) == (1, None)
    marks = examined(averaged, attack, ModelState.kind, {1: 1})
    assert mean(marks[None]) > 0.6 > mean(marks[None], "random_style")
    assert mean(marks[None], "other_domain") < 0.3


def test_the_label_of_one_image_is_read_from_what_training_on_it_changed(averaged: Fitted) -> None:
    attack = Attack.named("label_histogram").configured({"practice_costly": 30})
    marks = examined(averaged, attack, ModelState.kind, {1: 1})
    assert mean(marks[1]) < 1.2
    assert min(mean(marks[1], name) for name in ("mean_image", "random_style", "other_client")) > 1.5


@pytest.mark.parametrize("name", ["domain_inference", "label_histogram"])
def test_too_little_practice_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.practice_costly: want at least 2, got 1"):
        Attack.named(name).configured({"practice_costly": 1})


# The number of images


@pytest.mark.parametrize(("epochs", "batch"), [(1, 32), (2, 4), (5, 7)])
def test_the_steps_of_training_bound_the_number_of_images(epochs: int, batch: int) -> None:
    """n in [B t/E, B (t/E + 1)), or from 1 where one batch is all: against every number tried."""
    method = Method.named("fedavg").configured({"local_epochs": epochs, "batch_size": batch})
    for n in (1, batch - 1, batch, batch + 1, 5 * batch):
        seen = epochs * max(1, n // batch)
        assert method.steps(n) == seen
        able = [m for m in range(1, 300) if epochs * max(1, m // batch) == seen]
        assert client_size.interval(method.steps, seen) == (able[0], able[-1])
        first = batch * seen // epochs if seen > epochs else 1
        assert (able[0], able[-1]) == (first, batch * (seen // epochs + 1) - 1)


def test_the_images_that_ccst_adds_are_counted() -> None:
    method = Method.named("ccst").configured({"local_epochs": 1, "batch_size": 10, "augmentation": 3})
    assert method.steps(10) == 3


def test_counters_tell_the_client_s_size_to_a_batch(averaged: Fitted) -> None:
    attack = Attack.named("client_size")()
    marks = examined(averaged, attack, ModelState.kind, {1: 1, 20: 1})
    assert mean(marks[1]) == 0  # a single image leaves the counters alone, which tells of it
    assert max(marks[None].headline["attack"]) < 4 / 10
    assert mean(marks[1]) < min(mean(marks[1], "other_client"), mean(marks[1], "mean_image"))


def test_a_shared_count_is_the_client_s_size(averaged: Fitted) -> None:
    marks = examined(averaged, Attack.named("client_size")(), SampleCount.kind, {1: 2, 2: 2, 5: 1})
    assert {error for size in marks for error in marks[size].headline["attack"]} == {0}
    assert all(mean(marks[size], name) > 0.1 for size in marks for name in ("noise", "random_style", "other_client"))


def test_who_guesses_a_size_is_not_told_it(averaged: Fitted) -> None:
    proctor = averaged.proctor()
    subject = proctor.subject(SampleCount.kind)
    sittings: list[Sitting] = proctor.sittings(subject, threat("server"), (1, 5), reconstruction=False, asks_size=True)
    items: list[Item] = list(sittings[0].items)
    asked = [one for item in items for ones in item.asked.values() for one in ones]
    assert {one.question.images_behind for one in asked} == {0}
    others = {int(one.question.artifact.tensors()["count"]) for item in items for one in item.asked["other_client"]}
    assert others == {1, 5}


@pytest.mark.parametrize(
    ("buffers", "reason"), [("keep_local", "no counter of BatchNorm crosses"), ("freeze", "stand still")]
)
def test_no_size_is_guessed_where_no_counter_counts(tiny: Dataset, buffers: str, reason: str) -> None:
    local = fit(tiny, clients=3, method="fedavg", settings={"buffers": buffers, "batch_size": "32"})
    said = Attack.named("client_size")().refuses(local.proctor().subject(ModelState.kind))
    assert said is not None
    assert reason in said


def test_the_typical_size_is_in_the_middle_of_all_clients(digits: Dataset) -> None:
    """Two clients to a domain, of 36 images, and two shadows, of fewer."""
    shadowed = fit(shortened(digits, 128), clients=6, method="fedavg")
    proctor = shadowed.proctor()
    (sitting,) = proctor.sittings(proctor.subject("sample_count"), threat("server"), (1,), reconstruction=False)
    held = [*shadowed.population.clients.values(), *shadowed.population.shadows.values()]
    assert sitting.view.typical == sorted(map(len, held))[len(held) // 2]
    assert torch.tensor([len(data) for data in held]).float().std() > 0


# The probe of few artifacts of many numbers


def test_a_wide_probe_is_the_dense_discriminant(rng: torch.Generator) -> None:
    """Against the covariance written out and inverted."""
    inputs, asked = torch.randn(12, 60, generator=rng).double(), torch.randn(5, 60, generator=rng).double()
    labels = torch.tensor([0, 0, 0, 0, 2, 2, 2, 2, 2, 3, 3, 3])
    found = probing._wide(inputs, labels, asked, 5)
    known = labels.unique()
    means = torch.stack([inputs[labels == label].mean(0) for label in known])
    rest = torch.stack([row - inputs[labels == label].mean(0) for row, label in zip(inputs, labels, strict=True)])
    spread = rest.square().mean(0).sqrt() + 1e-8
    shrunk = ledoit_wolf_shrinkage((rest / spread).numpy(), assume_centered=True)
    sample = (rest / spread).T @ (rest / spread) / 12
    covariance = (1 - shrunk) * sample + shrunk * sample.trace() / 60 * torch.eye(60, dtype=torch.float64)
    priors = torch.stack([(labels == label).double().mean() for label in known])
    centers = means / spread
    inverse = torch.linalg.inv(covariance)
    logs = torch.stack(
        [
            torch.stack([x @ inverse @ m - m @ inverse @ m / 2 + p.log() for m, p in zip(centers, priors, strict=True)])
            for x in asked / spread
        ]
    )
    torch.testing.assert_close(found[:, known].double(), logs.log_softmax(1), rtol=1e-4, atol=1e-4)
    assert (found[:, [1, 4]] == -50).all()
