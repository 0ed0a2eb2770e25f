"""Membership among held-out images: the likelihood ratio by hand, whose images are asked about, and who is told apart."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import Fitted, fit, shortened
from factories import crossed, evaluated, fitted_once, mean, only_the_server_sees, seeded

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import Dataset
from fdgpriv.tasks.membership import HeldOutMembers
from fdgpriv.threat import threat

module: Any = import_module("fdgpriv.attacks.evaluation_membership")


@pytest.fixture(scope="module")
def trained(digits: Dataset) -> Fitted:
    settings = {"rounds": "12", "lr": "0.05", "batch_size": "8", "local_epochs": "2"}
    return fitted_once(shortened(digits, 90), clients=6, method="feddg_ga", settings=settings, keep="all")


def test_the_ratio_is_that_of_two_normals(rng: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHRINKAGE", 0.0)
    rows = torch.randn(20, 2, 3, generator=rng, dtype=torch.float64)
    likely, means, count = torch.rand(20, 2, generator=rng).softmax(1), torch.tensor([0.1, -0.3, 0.2]).double(), 5
    ratios = module.log_ratios(rows, likely, means, count)
    flat, weights = rows.flatten(0, 1), likely.double().flatten() / 20
    center = (weights[:, None] * flat).sum(0)
    covariance = sum(w * torch.outer(row - center, row - center) for w, row in zip(weights, flat, strict=True)) / count
    without = torch.distributions.MultivariateNormal(center, covariance).log_prob(means)
    for of_image, shares, ratio in zip(rows, likely.double(), ratios, strict=True):
        having = [
            torch.distributions.MultivariateNormal(center + (row - center) / count, covariance).log_prob(means)
            for row in of_image
        ]
        wanted = sum(share * (one - without).exp() for share, one in zip(shares, having, strict=True))
        assert float(ratio) == pytest.approx(float(wanted.log()), abs=1e-4)


def test_exact_losses_name_the_images_and_noisy_ones_do_not(rng: torch.Generator) -> None:
    """With the right label or another one, of hundreds of candidates; an unlikely label is not tried."""
    of_each = torch.rand(200, 4, 12, generator=rng).double()
    likely, members = torch.full((200, 4), 0.1), torch.tensor([5, 40, 180])
    labels = torch.randint(4, (200,), generator=rng)
    likely[torch.arange(200), labels] = 0.7
    given = torch.tensor([int(labels[5]), (int(labels[40]) + 1) % 4, int(labels[180])])
    means = of_each[members, given].mean(0)
    assert sorted(module.solved(of_each, likely, means.float(), 3).tolist()) == members.tolist()
    assert module.solved(of_each, likely, means + 0.01 * torch.randn(12, generator=rng), 3) is None
    likely[40, given[1]] = 0.01
    assert module.solved(of_each, likely, means, 3) is None


@pytest.mark.slow
def test_members_are_what_the_client_holds_out(trained: Fitted) -> None:
    evaluator = trained.evaluator()
    (asked,) = evaluator.adversaries(evaluator.series("model_evaluation"), threat("server"), (None,), HeldOutMembers())
    assert {trial.client for trial in asked.trials} >= set(trained.population.clients)
    for trial in asked.trials:
        data = trained.population.data(trial.client)
        candidates = trial.truth.pool[trial.truth.membership_candidates]
        members = candidates[trial.truth.members]
        assert {image.numpy().tobytes() for image in members} == {i.numpy().tobytes() for i in data.held_out_images}
        own = {image.numpy().tobytes() for image in data.images}
        assert not own & {image.numpy().tobytes() for image in candidates}


@pytest.mark.slow
def test_held_out_images_are_told_from_others(trained: Fitted) -> None:
    scores = evaluated(trained, "evaluation_membership", "model_evaluation", (None,))[None]
    assert mean(scores) > 0.9
    for control in ("noise", "other_client"):
        assert mean(scores, control) < 0.65


@pytest.mark.slow
def test_simulated_clients_hold_out_their_images(trained: Fitted) -> None:
    """As the positive control simulates them again."""
    evaluator = trained.evaluator()
    target = evaluator.series("model_evaluation")
    simulated = replace(target, wire={})
    (asked,) = evaluator.adversaries(simulated, threat("server"), (None,), HeldOutMembers())
    recorded = [trial for trial in asked.trials if trial.client in target.wire]
    assert len(recorded) == 6
    for trial in recorded:
        artifact = trial.by_role["attack"][0].observation.artifact
        values = target.wire[trial.client].tensors()["values"]
        torch.testing.assert_close(artifact.tensors()["values"], values, atol=1e-6, rtol=1e-6)


@pytest.fixture(scope="module")
def personal(digits: Dataset) -> Fitted:
    settings = {"rounds": "12", "lr": "0.05", "batch_size": "8", "local_epochs": "2"}
    return fitted_once(shortened(digits, 90), clients=6, method="gperxan", settings=settings, keep="all")


def test_losses_are_of_the_models_that_a_client_trained(digits: Dataset) -> None:
    """gPerXAN's: each client's own, which the server receives; of loss and accuracy the losses are read."""
    fitted = fit(shortened(digits, 48), clients=3, method="gperxan", settings={"rounds": "3"}, keep="all")
    target = fitted.evaluator().series("model_evaluation")
    only_the_server_sees(target, "has clients' model updates and sees every round")
    simulator: Any = target.simulator
    assert simulator.metric == "loss"
    uploads = {(a.client, a.round): a for a in crossed(fitted.transcript, ModelState) if a.client != SERVER}
    assert len(uploads) == 3 * 3
    for name in target.clients:
        data, network = fitted.population.data(name), simulator.method.model(fitted.federation, seeded(0))
        losses = []
        for round in range(3):
            uploads[name, round].load_into(network)
            with torch.no_grad():
                rows = network.eval()(data.held_out_images).log_softmax(1)
            losses.append(-float(rows[torch.arange(len(rows)), data.held_out_labels].mean()))
        assert target.wire[name].tensors()["values"].tolist() == pytest.approx(losses, rel=1e-4)
        of_each = simulator.of(target.received_model[name]).of_each(data.held_out_images, data.held_out_labels)
        assert of_each.mean(0).tolist() == pytest.approx(losses, rel=1e-4)


@pytest.mark.slow
def test_held_out_images_are_told_by_own_models(personal: Fitted) -> None:
    scores = evaluated(personal, "evaluation_membership", "model_evaluation", (None,))[None]
    assert mean(scores) > 0.9
    for control in ("noise", "other_client"):
        assert mean(scores, control) < 0.65
