"""BatchNorm statistics that clients take anew, as what is evaluated: how they are made, and what is read from them."""

from dataclasses import replace
from importlib import import_module
from itertools import product
from types import SimpleNamespace
from typing import Any

import factories
import pytest
import torch
from conftest import Evaluator, Fitted, shortened, under
from factories import fitted_once, holding, in_one_row_and_back, inferred, mean, only_the_server_sees
from scipy.stats import multivariate_normal

from fdgpriv.adversary import Observation
from fdgpriv.artifacts.parameters import STATISTICS, BatchNormStatistics, ModelState
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.bn_statistics import StatisticsSimulator
from fdgpriv.simulation.simulator import ClientSample
from fdgpriv.tasks.images import Labelled
from fdgpriv.tasks.membership import Members, auc
from fdgpriv.threat import threat
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.trial_scores import TrialScores

statistics_membership: Any = import_module("fdgpriv.attacks.statistics_membership")

HASTE = {"rounds": "2", "lr": "0.03", "batch_size": "8", "invariance": "0", "pretrain_epochs": "1"}
KIND = BatchNormStatistics.kind


@pytest.fixture(scope="module")
def renewed(digits: Dataset) -> Fitted:
    """LSI without its translator, two rounds, four clients to a domain of some 17 images each."""
    return fitted_once(shortened(digits, 100), clients=12, method="lsi", settings=HASTE, whole_network=True)


def target_of(fitted: Fitted) -> tuple[ArtifactSeries[StatisticsSimulator], StatisticsSimulator]:
    target = fitted.shared.series(KIND)
    assert isinstance(target.simulator, StatisticsSimulator)
    return target, target.simulator  # type: ignore[return-value]


# The simulator


def test_they_are_taken_under_the_averaged_model(renewed: Fitted) -> None:
    target, _ = target_of(renewed)
    assert {id(model) for model in target.received_model.values()} == {
        id(renewed.transcript.model_sent(1, "recalibrate"))
    }
    assert renewed.transcript.model_sent(1, "recalibrate") is not renewed.transcript.model_sent(1)
    assert set(target.received_model) == set(renewed.population.clients) | set(renewed.population.shadows)


def test_of_one_batch_they_are_made_again(digits: Dataset) -> None:
    whole = fitted_once(shortened(digits, 64), clients=3, method="lsi", settings={**HASTE, "batch_size": "64"})
    target, simulator = target_of(whole)
    for name in target.clients:
        own = holding(whole, name, KIND)
        made = simulator.simulate(ClientSample.all_of(own), generator(5))
        assert set(made.tensors()) == set(target.wire[name].tensors())
        for key, tensor in target.wire[name].tensors().items():
            torch.testing.assert_close(made.tensors()[key], tensor, atol=1e-4, rtol=1e-4)


def test_they_are_means_over_batches_of_moments_in_training(renewed: Fitted) -> None:
    """Against each layer's inputs, written out; of one image the head's layer keeps what was sent."""
    target, simulator = target_of(renewed)
    own = holding(renewed, target.clients[0], KIND)
    model, seen = simulator.network().train(), []
    own.received_model.load_into(model)
    name = [key for key in target.wire[target.clients[0]].tensors() if key.endswith("running_mean")][3]
    name = name.removesuffix(".running_mean")
    layer = dict(model.named_modules())[name]
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    index = torch.tensor([3, 5, 7])
    with torch.no_grad():
        model(own.images[index])
    made = simulator.simulate(ClientSample(own, index), generator(2)).tensors()
    torch.testing.assert_close(made[f"{name}.running_mean"], seen[0].mean(dim=(0, 2, 3)))
    torch.testing.assert_close(made[f"{name}.running_var"], seen[0].var(dim=(0, 2, 3)))
    alone = simulator.simulate(ClientSample(own, index[:1]), generator(2)).tensors()
    assert torch.equal(alone["head.norm.running_mean"], own.received_model.state["head.norm.running_mean"])


def test_an_artifact_is_one_row_and_back(renewed: Fitted) -> None:
    target, simulator = target_of(renewed)
    in_one_row_and_back(target)
    name, artifact = next(iter(target.wire.items()))
    row = torch.full_like(simulator.to_vector(artifact, target.received_model[name]), -1.0)
    back = simulator.from_vector(row, target.received_model[name]).tensors()
    assert min(float(tensor.min()) for key, tensor in back.items() if "mean" not in key) >= 0


def test_what_was_sent_is_the_origin_of_a_reader_s_vector(renewed: Fitted) -> None:
    target, simulator = target_of(renewed)
    sent = target.received_model[target.clients[0]]
    kept = {name: t for name, t in sent.state.items() if name.rpartition(".")[2].startswith(("running", "num"))}
    nothing = BatchNormStatistics(client="a", round=1, state=kept)
    assert float(simulator.vector(nothing, sent).abs().max()) < 1e-5
    assert float(simulator.vector(target.wire[target.clients[0]], sent).abs().max()) > 0.1


def test_only_the_server_sees_them(renewed: Fitted) -> None:
    target, _ = target_of(renewed)
    only_the_server_sees(target, "has the model's BatchNorm statistics")
    assert target.earlier.keys() == target.wire.keys()


def test_no_target_without_artifact_or_model(renewed: Fitted, tiny: Dataset) -> None:
    plain = fitted_once(tiny, clients=3, method="lsi", settings={**HASTE, "rounds": "1", "recalibrate_bn": "false"})
    assert KIND not in plain.evaluator().artifact_series
    bare = fitted_once(tiny, clients=3, method="lsi", settings={**HASTE, "rounds": "1"}, keep="small")
    assert KIND not in bare.evaluator().artifact_series


# What is read from them


def evaluated(
    fitted: Fitted | Evaluator, name: str, sizes: tuple[int | None, ...], few: int | None = None, **settings: object
) -> dict[int | None, TrialScores]:
    """The scores on one artifact of each client and size."""
    attack = Attack.named(name).configured(settings)
    return factories.evaluated(fitted, attack, KIND, sizes, per_client={1: 1, 5: 1}, few=few)


CONTROLS = ("noise", "mean_image", "random_style", "other_client")


def test_the_domain_is_read_from_them(renewed: Fitted) -> None:
    scores = evaluated(renewed, "domain_inference", (1, None), expensive_simulations=15)
    assert min(mean(scores[1]), mean(scores[None])) > 0.9
    assert max(mean(scores[None], name) for name in ("noise", "mean_image", "random_style", "other_domain")) < 0.6


@pytest.mark.slow
def test_the_label_of_one_image_is_read_from_them(renewed: Fitted) -> None:
    scores = evaluated(renewed, "label_histogram", (1,), expensive_simulations=50)
    controls = ("noise", "uniform", "public_shares", "half_uniform", "random_style", "other_client")
    assert mean(scores[1]) + 0.1 < min(mean(scores[1], name) for name in controls)


def test_counters_tell_the_client_s_size_to_a_batch(renewed: Fitted) -> None:
    scores = evaluated(renewed, "client_size", (1, None))
    assert (
        mean(scores[1]) == 14
    )  # of one image: one batch of 8, as of up to 15 images, of which 15 is nearest to the usual
    assert max(scores[None].headline["attack"]) < 8 / 16
    assert mean(scores[1]) < min(mean(scores[1], name) for name in ("other_client", "mean_image"))


def test_one_image_is_drawn_from_them(renewed: Fitted) -> None:
    scores = evaluated(renewed, "deep_inversion", (1,), few=6, steps=10)
    assert mean(scores[1]) > 1 + max(mean(scores[1], name) for name in CONTROLS)
    assert mean(scores[1], "random_style") < mean(scores[1], "mean_image") + 0.5


@pytest.mark.slow  # that cut artifacts are read at their length is a quick test of test_importance.py
def test_one_image_is_drawn_from_statistics_that_are_cut(renewed: Fitted) -> None:
    """The adversary learns from such statistics."""
    scores = evaluated(under(renewed, "clip:clip=2"), "deep_inversion", (1,), few=6, steps=10)
    assert mean(scores[1]) > 1 + max(mean(scores[1], name) for name in CONTROLS)


def test_without_statistics_the_most_frequent_label_is_drawn(renewed: Fitted) -> None:
    (trials,) = renewed.evaluator().adversaries(renewed.evaluator().series(KIND), threat("server"), (1,))
    received_model = renewed.transcript.model_sent(1, "recalibrate")
    assert received_model is not None
    state = {name: t for name, t in received_model.state.items() if name.rpartition(".")[2] in STATISTICS}
    none = torch.zeros(0, dtype=torch.int64)
    unchanged = Observation(BatchNormStatistics(client="c", round=1, state=state), 1, none[None], none, received_model)
    attack = Attack.named("deep_inversion").configured({"steps": 2})
    (drawn,) = attack.infer(trials.adversary, [unchanged], generator(0))
    assert isinstance(drawn, Labelled)
    torch.testing.assert_close(drawn.shares, trials.adversary.public_shares)


def test_one_image_is_found_among_a_hundred(renewed: Fitted) -> None:
    scores = evaluated(renewed, "identification", (1,), few=4, expensive_simulations=30)
    assert mean(scores[1]) > 0.9
    assert max(mean(scores[1], name) for name in CONTROLS) < 0.2


def test_statistics_of_single_images_are_a_client_s(renewed: Fitted) -> None:
    """Many at once against one after the other; and of several the means are averages."""
    target, simulator = target_of(renewed)
    evaluator = renewed.evaluator()
    (adversary_trials,) = evaluator.adversaries(evaluator.series(KIND), threat("server"), (None,))
    own = holding(renewed, target.clients[0], KIND)
    found = import_module("fdgpriv.attacks._simulation").single_image_styles(
        adversary_trials.adversary, own.images[:3], own.received_model
    )
    for image in range(3):
        made = simulator.simulate(ClientSample(own, torch.tensor([image]), defended=False), generator(0))
        wanted = simulator.vector(made, own.received_model)[: found.shape[1]]
        torch.testing.assert_close(found[image], wanted, atol=1e-3, rtol=1e-3)
    means = simulator.vector(simulator.simulate(ClientSample(own, torch.arange(3)), generator(0)), own.received_model)[
        : found.shape[1] // 2
    ]
    torch.testing.assert_close(found.mean(0)[: len(means)], means, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
def test_few_images_are_known_as_members(renewed: Fitted) -> None:
    scores = evaluated(renewed.default_evaluator(), "statistics_membership", (1, 5))
    assert mean(scores[1]) == 1
    assert mean(scores[5]) > 0.9
    for size, name in product((1, 5), ("noise", "random_style", "other_client")):
        assert abs(mean(scores[size], name) - 0.5) < 0.15


@pytest.mark.slow
def test_members_are_known_by_all_layers_and_rounds(renewed: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer where only the first layer or the last round is read, or statistics are taken for independent."""

    evaluator = renewed.evaluator()
    (asked,) = evaluator.adversaries(evaluator.series(KIND), threat("server"), (None,), Members())
    ones = [trial.by_role["attack"][0] for trial in asked.trials]

    def area(rounds: int = 2) -> float:
        attack = Attack.named("statistics_membership").configured({"rounds": rounds})
        adversary = replace(asked.adversary, cache=Cache())
        found, _ = inferred(attack, adversary, [one.observation for one in ones], generator(1))
        return float(auc(found, [one.truth for one in ones]).mean())

    full, of_images = area(), statistics_membership.image_statistics
    assert full > 0.95
    assert area(rounds=1) < full - 0.01
    with monkeypatch.context() as patch:
        patch.setattr(statistics_membership, "_SHRINKAGE", 1e6)
        assert area() < full - 0.1
    with monkeypatch.context() as patch:
        patch.setattr(
            statistics_membership, "image_statistics", lambda *given: dict([next(iter(of_images(*given).items()))])
        )
        assert area() < full - 0.1


def test_the_ratio_is_that_of_two_gaussians(rng: torch.Generator) -> None:
    """Against the densities by scipy, with the covariance written out."""
    n, rows = 7, [torch.randn(40, 6, generator=rng).double() @ torch.randn(6, 6, generator=rng).double() for _ in "ab"]
    test = statistics_membership._StatisticsTest([{"layer": own} for own in rows], torch.arange(40))
    every = torch.cat([(own - own.mean(0)) / own.std(0) for own in rows], dim=1)
    covariance = (every.T @ every / 40 + 2 * statistics_membership._SHRINKAGE * torch.eye(12)) / n
    shared = torch.randn(12, generator=rng).double() / 3
    means = [own.mean(0) + own.std(0) * part for own, part in zip(rows, shared.split(6), strict=True)]
    states = [
        {"layer.running_mean": m[:3].float(), "layer.running_var": (m[3:] - m[:3].square()).float()} for m in means
    ]
    nothing = {"layer.running_mean": torch.zeros(3), "layer.running_var": torch.ones(3)}
    view = [
        SimpleNamespace(
            artifact=BatchNormStatistics(client="a", round=0, state=state),
            received_model=ModelState(client="s", round=0, state=nothing),
        )
        for state in states
    ]
    density = multivariate_normal(cov=covariance.numpy()).logpdf
    expected = density((shared - every / n).numpy()) - density(shared.numpy())
    assert test.log_ratio(view, n).numpy() == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow
def test_clients_are_known_again(renewed: Fitted) -> None:
    scores = evaluated(renewed, "linkage", (None,))
    assert mean(scores[None]) > 0.6 > mean(scores[None], "other_client") + 0.2


def test_a_model_on_the_wire_is_not_taken_for_them(renewed: Fitted) -> None:
    """Both are evaluated, each by its own simulator."""
    assert {KIND, ModelState.kind} <= set(renewed.evaluator().artifact_series)
    assert {KIND, ModelState.kind} <= set(Attack.named("deep_inversion").kinds())
