"""Accuracies on held-out images as what is evaluated: of several rounds together they tell how many images there are."""

from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import factories
import numpy as np
import pytest
import torch
from conftest import TARGET, Fitted, half_backbone, shortened
from factories import fitted_once, mean, only_the_server_sees, run_on
from hypothesis import given
from hypothesis import strategies as st

from fdgpriv.artifacts.statistics import ValidationHistory, ValidationMetrics
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.federation.held_out import SHARE, held_out, held_out_for
from fdgpriv.federation.partition import populate
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.validation import ValidationSimulator
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator

domain_inference: Any = import_module("fdgpriv.attacks.domain_inference")
client_size: Any = import_module("fdgpriv.attacks.client_size")
KIND = ValidationMetrics.kind
SELECTING = {"selection": "validation", "rounds": "5", "batch_size": "8", "lr": "0.1", "schedule": "cosine"}


# The closed form


@given(st.integers(1, 60), st.data())
def test_the_least_denominator_is_that_of_a_search(m: int, data: st.DataObject) -> None:
    """Every m tried, with exact fractions; once of numbers as they are, once rounded to float32."""
    hits = data.draw(st.lists(st.integers(0, m), min_size=1, max_size=6))
    exact = [Fraction(k, m) for k in hits]
    slow = next(n for n in range(1, m + 1) if all((share * n).denominator == 1 for share in exact))
    assert m % slow == 0
    assert client_size.denominator([float(share) for share in exact]) == slow
    assert client_size.denominator([float(np.float32(k) / np.float32(m)) for k in hits]) == slow


def test_large_denominators_reveal_nothing(rng: torch.Generator) -> None:
    assert client_size.denominator(torch.rand(4, generator=rng).double().tolist()) == 0
    assert client_size.denominator([1 / 2039, 1 / 2029]) == 0  # two primes: more images than we look for
    assert client_size.denominator([0.0, 1.0, 1.0]) == 1


@pytest.mark.parametrize("share", [0.1, 0.2, 0.29])
@pytest.mark.parametrize("n", [1, 2, 5, 17, 18, 19, 20, 27, 33, 200])
def test_held_out_images_of_a_client_of_that_size(n: int, share: float) -> None:
    beside = held_out_for(n, share)
    assert held_out(n + beside, share) == beside
    assert all(held_out(n + fewer, share) != fewer for fewer in range(1, beside))


def test_the_held_out_share_is_exact() -> None:
    for percent in (1, 10, 20, 29, 57, 99):
        assert [held_out(n, percent / 100) for n in range(1, 1001)] == [
            max(1, percent * n // 100) for n in range(1, 1001)
        ]


@pytest.mark.parametrize(("share", "typical"), [(0.1, 50), (0.2, 50), (0.2, 1000), (0.2, 82), (0.3, 46)])
def test_held_out_images_bound_the_client_size(share: float, typical: int) -> None:
    federation = SimpleNamespace(held_out=share)
    adversary = SimpleNamespace(typical=typical, simulator=lambda kind: SimpleNamespace(federation=federation))
    able = [n - 20 for n in range(21, 1000) if held_out(n, share) == 20]
    size = client_size.ClientSize()._by_accuracy(adversary, 20)
    assert size == min(able, key=lambda n: abs(n - typical))


# The target


@pytest.fixture(scope="module")
def measured(digits: Dataset) -> Fitted:
    """FedAvg that selects by validation: clients of very different sizes, which a Dirichlet draw deals."""
    dataset, seed = shortened(digits, 160), 0
    config = AuditConfig(
        methods=("fedavg",), preset="quick", settings={**SELECTING, "local_epochs": "1"}, device="cpu"
    ).checked()
    population = populate(dataset, TARGET, "dirichlet:0.7", 8, seed)
    federation = replace(config.federation(dataset, list(population.clients), seed), backbone=half_backbone)
    method = config.method("fedavg")
    ran = run_on(method, federation, population.clients, keep="ends")
    return Fitted(population, method, federation, Defense.named("none")(), ran.transcript)


def test_accuracies_of_all_rounds_are_one_artifact(measured: Fitted) -> None:
    target = measured.evaluator().series(KIND)
    assert set(target.wire) == set(measured.population.clients)
    for name, artifact in target.wire.items():
        assert isinstance(artifact, ValidationHistory)
        hits = artifact.values * len(measured.population.data(name).held_out_images)
        assert len(hits) == 5  # of the models of rounds 1 to 4, and of the last
        torch.testing.assert_close(hits, hits.round(), atol=1e-5, rtol=0)


def test_the_last_model_s_accuracy_is_made_again(measured: Fitted) -> None:
    target = measured.evaluator().series(KIND)
    simulator = target.simulator
    assert isinstance(simulator, ValidationSimulator)
    assert simulator.models[-1] is measured.transcript.model_sent(5, "validate")
    assert simulator.models[-2] is measured.transcript.model_sent(4, "fit")
    assert simulator.models[0] is simulator.models[-2]  # of rounds whose model is not kept, the next that is
    for name, data in measured.population.clients.items():
        sample = ClientSample.all_of(ClientImages(data.held_out_images, data.held_out_labels))
        if held_out_for(len(sample.index), SHARE) != len(sample.index):
            continue  # only a client of one image holds out as many as it has
        made = simulator.simulate(sample, generator(0))
        torch.testing.assert_close(made.tensors()["values"][-2:], target.wire[name].tensors()["values"][-2:])


def test_defended_accuracies_are_simulated_with_it(measured: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from those on single images, which the defense never saw."""
    calls: list[int] = []
    monkeypatch.setattr(ValidationSimulator, "of_each", lambda *_: (calls.append(1), torch.zeros(9, 5))[1])
    factories.evaluated(measured.evaluator(), "domain_inference:expensive_simulations=2", KIND, (None,))
    assert calls
    calls.clear()
    noisy = replace(measured, defense=Defense.named("gaussian")(covers=(KIND,)))
    factories.evaluated(noisy, "domain_inference:expensive_simulations=2", KIND, (None,))
    assert not calls


def test_accuracies_are_means_over_images(measured: Fitted) -> None:
    target = measured.evaluator().series(KIND)
    simulator = target.simulator
    assert isinstance(simulator, ValidationSimulator)
    for name, data in measured.population.clients.items():
        correct = simulator.of_each(data.held_out_images, data.held_out_labels)
        assert correct.shape == (len(data.held_out_labels), 5)
        expected = target.wire[name].tensors()["values"][-2:].float()  # earlier models are not kept
        torch.testing.assert_close(correct.mean(0)[-2:], expected)


def test_domains_are_inferred_from_accuracies(rng: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four held-out images in 16 rounds: a domain's images are hard in a quarter of the rounds. Fewer clients tell less."""
    hard = torch.arange(16) % 4 == torch.arange(3)[:, None]
    correct = [(torch.rand(100, 16, generator=rng) < torch.where(row, 0.7, 0.9)).float() for row in hard]
    rows = torch.cat([one[torch.randint(100, (200, 4), generator=rng)].mean(1) for one in correct])
    truth = torch.arange(3).repeat_interleave(200)
    simulator = SimpleNamespace(
        of_each=lambda images, labels: correct[int(labels)], federation=SimpleNamespace(held_out=0.1)
    )
    held = [SimpleNamespace(images=None, labels=d) for d in range(3)]

    def right() -> float:
        adversary = SimpleNamespace(domains=held, sizes=(41,), seed=0, cache=Cache())
        vectors, domains = domain_inference.metrics_by_domain(adversary, simulator)
        n_images = torch.full((600,), 41)
        told = domain_inference.probe(vectors, domains, rows, n_images, 3).argmax(1)
        return float((told == truth).float().mean())

    # the best rule that knows each round's error rate, rounds being independent
    rates = torch.stack([one.mean(0) for one in correct])
    hits = rows * 4
    best = (hits @ rates.log().T + (4 - hits) @ (1 - rates).log().T).argmax(1)
    assert right() > float((best == truth).float().mean()) - 0.03
    monkeypatch.setattr(domain_inference, "_SIMULATED_CLIENTS", 8)
    assert right() < float((best == truth).float().mean()) - 0.03


@pytest.mark.slow
def test_accuracies_reveal_the_size_nearly(measured: Fitted) -> None:
    scores = factories.evaluated(measured.default_evaluator(), "client_size", KIND, (1, None))
    sizes = [len(data) for data in measured.population.clients.values()]
    assert max(sizes) > 2 * min(sizes)
    assert mean(scores[None], "random_style") > 2 * mean(scores[None])
    assert mean(scores[None]) < 0.5 * min(mean(scores[None], name) for name in ("mean_image", "noise", "other_client"))
    assert mean(scores[1]) < min(mean(scores[1], name) for name in ("mean_image", "other_client", "random_style"))


def test_only_the_server_hears_them(measured: Fitted) -> None:
    only_the_server_sees(measured.evaluator().series(KIND), "sees every round")


def test_no_target_without_artifact_or_model(tiny: Dataset) -> None:
    assert KIND not in fitted_once(tiny, clients=3, method="fedavg").evaluator().artifact_series
    bare = fitted_once(tiny, clients=3, method="fedavg", settings={"selection": "validation"}, keep="small")
    assert KIND not in bare.evaluator().artifact_series
