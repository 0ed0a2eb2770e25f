"""Class mean regression: the average look from labels and the first layer's statistics, against slower and blind ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import Evaluator
from factories import mean
from fdgpriv.attacks import class_mean_regression
from fdgpriv.attacks._simulation import received_models, simulated_by_domain
from fdgpriv.attacks.class_mean_regression import ClassMeanRegression, ClassMeans, first_statistics, shrunk_means
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.tasks.average_look import AverageLook
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.tasks.task import Task
from fdgpriv.threat import Capability, ThreatModel, threat
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator
from fdgpriv.view import SeenRound

MODELS = "model_state"
NO_NOISE = torch.zeros(6, 6, dtype=torch.float64)


def images_of_classes(count: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Images (N, 40) of four classes, their labels (N,), and statistics (N, 6) that are linear in the images."""
    labels = torch.arange(count) % 4
    directions = torch.randn(6, 40, generator=generator(9))
    images = torch.randn(4, 40, generator=generator(8))[labels] + torch.randn(count, 6, generator=rng) @ directions
    return images, labels, images @ directions.T


def test_class_means_are_shrunk_by_chance(rng: torch.Generator) -> None:
    images, labels, _ = images_of_classes(50, rng)
    counts = labels.bincount(minlength=5).float()
    center, by_class = shrunk_means(images, labels, counts)
    within = sum(
        float((image - images[labels == label].mean(0)).square().sum())
        for image, label in zip(images, labels, strict=True)
    )
    within /= (50 - 4) * 40
    apart = {c: images[labels == c].mean(0) - images.mean(0) for c in range(4)}
    between = sum(float(apart[c].square().mean()) - within / float(counts[c]) for c in range(4)) / 4
    torch.testing.assert_close(center, images.mean(0))
    for c in range(4):
        expected = apart[c] * between / (between + within / float(counts[c]))
        torch.testing.assert_close(by_class[c], expected, atol=1e-4, rtol=1e-4)
    assert not bool(by_class[4].any())  # no image of the fifth class is known


def test_classes_that_are_alike_move_nothing(rng: torch.Generator) -> None:
    rows, labels = torch.randn(200, 300, generator=rng), torch.arange(200) % 4
    _, by_class = shrunk_means(rows, labels, labels.bincount(minlength=4).float())
    assert float(by_class.square().mean()) < 0.1 / 50  # of what chance alone moves the means of 50 images by


def test_the_regression_is_scikit_learn_s(rng: torch.Generator) -> None:
    images, labels, statistics = images_of_classes(60, rng)
    means = ClassMeans.of(images, labels, statistics, 4)
    factor, n = torch.randn(6, 2, generator=rng).double(), 20
    shares, noise = torch.tensor([0.4, 0.3, 0.2, 0.1]), factor @ factor.T / 10
    observed = statistics[:n].mean(0)
    _, class_images = shrunk_means(images, labels, labels.bincount().float())
    level, class_statistics = shrunk_means(statistics, labels, labels.bincount().float())
    values, vectors = np.linalg.eigh(np.eye(6) + n * noise.numpy())
    whitener = vectors / np.sqrt(values)
    inputs = ((statistics - level - class_statistics[labels]) / statistics.std(0)).double().numpy() @ whitener
    targets = (images - images.mean(0) - class_images[labels]).double().numpy()
    away = observed - level
    for c in range(4):
        away = away - (shares[c] - 0.25) * class_statistics[c]
    away = (away / statistics.std(0)).double()[None].numpy() @ whitener
    expected = Ridge(alpha=0.5 * 6, fit_intercept=False).fit(inputs, targets).predict(away)
    found = means.of_statistics(observed, shares, n, noise, 0.5)
    np.testing.assert_allclose(found.numpy(), expected[0], atol=1e-4)


def test_noise_is_the_variation_beyond_images(rng: torch.Generator) -> None:
    images, labels, statistics = images_of_classes(400, rng)
    means = ClassMeans.of(images, labels, statistics, 4)
    index = torch.stack([torch.randperm(400, generator=rng)[:20] for _ in range(3000)])
    clean, added = statistics[index].mean(1), torch.randn(3000, generator=rng)[:, None] * means.spread
    assert float(means.noise(clean, 20).trace()) < 0.2 * float(means.noise(clean + added, 20).trace())
    ones = torch.ones(6, 6, dtype=torch.float64)  # the same in all directions
    torch.testing.assert_close(means.noise(clean + added, 20), ones, atol=0.15, rtol=0)


def test_labels_and_statistics_each_tell_of_the_mean(rng: torch.Generator) -> None:
    """Clients of 20 images: nearer by labels, nearer still with statistics; statistics of chance move little."""
    images, labels, statistics = images_of_classes(400, rng)
    means, errors = ClassMeans.of(images, labels, statistics, 4), []
    noise = 100 * torch.eye(6, dtype=torch.float64)
    for turn in range(60):
        index = torch.randperm(400, generator=generator(turn))[:20]
        shares, truth = labels[index].bincount(minlength=4) / 20, images[index].mean(0)
        by_labels, observed = means.of_labels(shares), statistics[index].mean(0)
        told = by_labels + means.of_statistics(observed, shares, 20, NO_NOISE, 1e-3)
        drowned = observed + 10 * means.spread * torch.randn(6, generator=rng)
        blurred = by_labels + means.of_statistics(drowned, shares, 20, noise, 70.0)
        drawn = (images.mean(0), by_labels, told, blurred)
        errors.append(torch.stack([(image - truth).square().mean() for image in drawn]))
    blind, by_labels_error, told_error, blurred_error = torch.stack(errors).mean(0).tolist()
    assert by_labels_error < 0.97 * blind
    assert told_error < 0.1 * by_labels_error
    assert blurred_error < 1.05 * by_labels_error


def test_statistics_far_beyond_chance_count_less(rng: torch.Generator) -> None:
    images, labels, statistics = images_of_classes(60, rng)
    means, shares = ClassMeans.of(images, labels, statistics, 4), torch.full((4,), 0.25)
    level = statistics.mean(0)
    far, farther = (means.of_statistics(level + 1e3 * s, shares, 20, NO_NOISE, 1.0) for s in (1.0, 100.0))
    torch.testing.assert_close(far, farther, atol=1e-3, rtol=1e-2)


def test_first_statistics_are_of_the_first_layer(rng: torch.Generator) -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4)
    ).eval()
    images = torch.rand(7, 3, 8, 8, generator=rng)
    with torch.no_grad():
        inputs = network[0](images)
    expected = torch.stack([torch.cat([one.mean((1, 2)), one.square().mean((1, 2))]) for one in inputs])
    torch.testing.assert_close(first_statistics(network, images), expected, atol=1e-5, rtol=1e-4)


def scored(evaluator: Evaluator, sizes: tuple[int | None, ...]) -> dict[int | None, object]:
    attack = ClassMeanRegression(expensive_simulations=12, last_layer_simulations=12)
    asked = evaluator.adversaries(evaluator.series(MODELS), threat("server"), sizes, attack.task)
    return dict(evaluate_trials(attack, asked, (), generator(2))[0])


def test_a_model_reveals_the_average_look(evaluator: Evaluator) -> None:
    whole = scored(evaluator, (None,))[None]
    assert mean(whole, "attack") < 0.95 * mean(whole, "domain_mean")
    for name in ("other_client", "other_domain", "random_style"):
        assert mean(whole, name) > mean(whole, "attack")


@pytest.mark.slow
def test_shares_and_statistics_both_matter(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scored(evaluator, (None,))[None]
    blind = ClassMeans.of_labels
    monkeypatch.setattr(ClassMeans, "of_labels", lambda self, shares: blind(self, self.shares))
    without_labels = scored(evaluator, (None,))[None]
    assert mean(without_labels, "attack") > 1.02 * mean(whole, "attack")  # shares matter
    monkeypatch.setattr(ClassMeans, "of_labels", blind)
    monkeypatch.setattr(class_mean_regression._Reader, "statistics", lambda self, artifact, received_model: None)
    assert mean(scored(evaluator, (None,))[None], "attack") > mean(whole, "attack")  # and statistics do


@pytest.mark.parametrize(("moved", "is_compared"), [("head", True), ("backbone", False)])
def test_clients_with_the_same_first_layers_are_compared(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch, moved: str, is_compared: bool
) -> None:
    """Clients that keep a head tell what clients that received one model do; those of another network nothing."""
    (asked,) = evaluator.adversaries(evaluator.series(MODELS), threat("server"), (None,), AverageLook())
    adversary, observation = asked.adversary, asked.trials[0].by_role["attack"][0].observation
    simulated = simulated_by_domain(adversary, 12, received_models([observation]))
    seen = adversary.view(observation)[-1]

    def noise(view: SeenRound) -> Tensor | None:
        fresh = replace(adversary, cache=Cache())
        monkeypatch.setattr(Adversary, "view", lambda *_: [view])
        reader = class_mean_regression._Reader(fresh, observation.received_model, simulated, 2.0)
        return reader._noise(observation, asked.trials[0].truth.domain, reader._class_means(adversary.domains[0]))

    def elsewhere(model: ModelState) -> ModelState:
        return replace(
            model,
            state={n: t + 1 if n.startswith(moved) and t.is_floating_point() else t for n, t in model.state.items()},
        )

    together = noise(seen)
    assert together is not None
    apart = replace(
        seen,
        received_models={name: elsewhere(model) for name, model in seen.received_models.items()},
        _others={name: elsewhere(model) for name, model in seen.others.items()},
    )
    if is_compared:
        torch.testing.assert_close(noise(apart), together, atol=1e-3, rtol=1e-2)
    else:
        assert noise(apart) is None


def test_who_knows_the_domain(evaluator: Evaluator) -> None:
    """An adversary that knows domains is told them, but not where they are the secret."""
    server = threat("server")
    unaware = replace(server, capabilities=server.capabilities - {Capability.KNOWS_DOMAIN})

    def told(who: ThreatModel, task: Task) -> set[bool]:
        (asked,) = evaluator.adversaries(evaluator.series(MODELS), who, (None,), task)
        sources, observed = asked.adversary.sources, [(t.truth, t.by_role["attack"][0]) for t in asked.trials]
        return {asked.adversary.domain_of(scored.observation) == sources[truth.domain] for truth, scored in observed}

    assert told(server, AverageLook()) == {True}
    assert told(server, DomainLabel()) == told(unaware, AverageLook()) == {False}
