"""Mean image regression: the average look from styles of several rounds, against plain ridge regression and blind guesses."""

import numpy as np
import torch
from conftest import Evaluator
from factories import mean
from fdgpriv.attacks.mean_image_regression import MeanImageRegression, WithinDomains, _regression
from sklearn.linear_model import Ridge

from fdgpriv.evaluation.scoring import evaluate_tasks
from fdgpriv.tasks.average_look import AverageLook
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.view import spaced

STYLES = "style_statistics"


def test_the_regression_is_scikit_learn_s(rng: torch.Generator) -> None:
    inputs, targets = torch.randn(30, 8, generator=rng), torch.rand(30, 5, generator=rng)
    standardised = ((inputs - inputs.mean(0)) / inputs.std(0)).double().numpy()
    alpha = 0.3 * np.mean(np.diag(standardised @ standardised.T))
    plain = Ridge(alpha=alpha).fit(standardised, targets.double().numpy()).predict(standardised[:4])
    np.testing.assert_allclose(_regression(inputs, targets, 0.3)(inputs[:4]).numpy(), plain, atol=1e-5)


def test_each_domain_has_its_regression(rng: torch.Generator) -> None:
    """The same deviation of an artifact means the opposite in the two domains."""
    domains = torch.arange(80) % 2
    own = torch.randn(80, 6, generator=rng)
    sign = torch.where(domains == 0, 1.0, -1.0)[:, None]
    centers = torch.tensor([[0.2] * 6, [0.7] * 6])
    means = centers[domains] + 0.01 * sign * own
    model = WithinDomains.of(own + 20 * domains[:, None], means, domains, centers, 1e-4)
    torch.testing.assert_close(model(own + 20 * domains[:, None]), means, atol=2e-3, rtol=0)


def test_rounds_are_evenly_spaced_and_the_last_is_read(evaluator: Evaluator) -> None:
    attack = MeanImageRegression(rounds=4, simulations=12)
    for length, numbers in ((1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (16, [3, 7, 11, 15]), (5, [0, 1, 2, 4])):
        assert list(spaced(range(length), attack.rounds)) == numbers
    (one,) = evaluator.adversaries(evaluator.series(STYLES), threat("server"), (None,), attack.task)
    attack.infer(one.adversary, [one.trials[0].by_role["attack"][0].observation], generator(0))
    assert one.adversary.view_read.rounds == {0, 1}


def test_an_image_is_read_from_its_style(evaluator: Evaluator) -> None:
    """One image: nearer than the mean of its domain by a twentieth; another client's style, or a random one, tells nothing."""
    attack = MeanImageRegression(simulations=30)
    asked = evaluator.adversaries(evaluator.series(STYLES), threat("server"), (1, None), attack.task)
    by_size, _ = evaluate_tasks(attack, asked, (), generator(2))
    single, whole = (by_size[size]["average_look"] for size in (1, None))
    assert mean(single, "attack") < 0.95 * mean(single, "domain_mean")
    for name in ("other_client", "other_domain", "random_style"):
        assert mean(single, name) > mean(single, "domain_mean")
    assert mean(whole, "attack") < 1.02 * mean(whole, "domain_mean")  # never worse than a blind guess


def test_empty_artifacts_give_the_domain_s_mean(rng: torch.Generator) -> None:
    domains, centers = torch.arange(200) % 2, torch.rand(2, 9, generator=rng)
    means = centers[domains] + 0.1 * torch.randn(200, 9, generator=rng)
    noise = torch.randn(200, 12, generator=rng) + 20 * domains[:, None]
    model = WithinDomains.of(noise, means, domains, centers, 30.0)
    seen = torch.randn(40, 12, generator=rng) + 20 * domains[:40, None]
    apart = (model(seen) - centers[domains[:40]]).square().mean()
    assert float(apart) < 0.02 * float((means - centers[domains]).square().mean())


def test_other_looks_by_a_third_party(evaluator: Evaluator) -> None:
    """Without images of the clients' domains: nearer to one image than its own mean image is, by a quarter."""
    attack = MeanImageRegression(looks=16, in_each=20, simulations=30)
    asked = evaluator.adversaries(evaluator.series(STYLES), threat("third_party"), (1,), attack.task)
    scores = evaluate_tasks(attack, asked, (), generator(2), [AverageLook()])[0][1]["average_look"]
    assert mean(scores, "attack") < 0.75 * mean(scores, "mean_image")
    assert mean(scores, "attack") < 0.75 * mean(scores, "random_style")
