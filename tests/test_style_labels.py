"""Label shares from styles beside other clients': the reading against a slower one, skew, clusters and controls."""

from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import Evaluator
from torch import Tensor

from fdgpriv.attack import Attack
from fdgpriv.tasks.label_shares import LabelShares
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.view import Deferred, Earlier

styles: Any = import_module("fdgpriv.attacks._style_labels")
N, K, WIDTH = 40, 3, 5


def of_domain(rng: torch.Generator, signal: float = 2.0, count: int = N, noise: float = 0.05) -> tuple[Any, Tensor]:
    """Influences with class means of this length, and one-hot labels; the class means are alike in all domains."""
    labels = torch.nn.functional.one_hot(torch.randint(K, (count,), generator=rng), K).double()
    means = signal * torch.eye(K, WIDTH).double()
    rows = labels @ means + torch.randn(count, WIDTH, generator=rng, dtype=torch.float64)
    rows = rows - rows.mean(0)
    left = noise * torch.randn(12, WIDTH, generator=rng, dtype=torch.float64)
    ones = torch.ones(WIDTH, dtype=torch.float64)
    return styles._DomainStyles([], rows, 0 * ones, ones, left), labels


def slow_reading(domains: list[Any], labels: list[Tensor], n: int) -> tuple[list[Tensor], float]:
    """Ridge regression on influences beside copies for each domain; every image left out by fitting anew."""
    count, width = len(domains), WIDTH * (1 + len(domains))

    def wide(rows: Tensor, d: int) -> Tensor:
        out = torch.zeros(len(rows), 1 + count, WIDTH, dtype=torch.float64)
        out[:, 0] = out[:, 1 + d] = rows
        return out.flatten(1)

    x = torch.cat([wide(one.influences, d) for d, one in enumerate(domains)])
    y = torch.cat([known - known.mean(0) for known in labels])
    noise = sum(
        n * len(one.influences) / len(one.noise) * wide(one.noise, d).T @ wide(one.noise, d)
        for d, one in enumerate(domains)
    )
    unit = float(x.square().sum(1).mean())

    def fit(inputs: Tensor, targets: Tensor, penalty: float) -> Tensor:
        return torch.linalg.solve(
            inputs.T @ inputs + noise + penalty * unit * torch.eye(width, dtype=torch.float64), inputs.T @ targets
        )

    found = []
    for penalty in styles._PENALTIES:
        others = [torch.arange(len(x)) != i for i in range(len(x))]
        without = torch.stack([x[i] @ fit(x[keep], y[keep], penalty) for i, keep in enumerate(others)])
        found.append((float((y - without).square().sum()), penalty, without))
    _, penalty, without = min(found, key=lambda one: one[0])
    slope = min(1.0, float((y * without).sum() / without.square().sum()))
    whole = slope * fit(x, y, penalty).view(1 + count, WIDTH, K)
    explained = float((y * without).sum()) ** 2 / float(without.square().sum() * y.square().sum())
    return [whole[0] + whole[1 + d] for d in range(count)], explained


def test_the_reading_is_the_slow_ridge_regression(rng: torch.Generator) -> None:
    pairs = [of_domain(rng, noise=0.1), of_domain(rng, count=25)]
    domains, labels = [one for one, _ in pairs], [known for _, known in pairs]
    found = styles._Reading.of(domains, labels, 30, known=True)
    wanted, explained = slow_reading(domains, labels, 30)
    torch.testing.assert_close(list(found.weights), wanted)
    assert found.explained == pytest.approx(explained)
    assert 0.3 < explained < 1


def test_of_an_unknown_domain_a_domain_is_left_out(rng: torch.Generator) -> None:
    """Domains that tell labels in ways of their own explain each other's labels in none, though their own well."""
    pairs = [of_domain(rng) for _ in range(4)]
    turned = [
        (type(one)([], one.influences.roll(d, 1), one.center, one.spread, one.noise), known)
        for d, (one, known) in enumerate(pairs)
    ]
    alike = styles._Reading.of([one for one, _ in pairs], [known for _, known in pairs], 30, known=False)
    apart = styles._Reading.of([one for one, _ in turned], [known for _, known in turned], 30, known=False)
    assert len(alike.weights) == len(apart.weights) == 1
    assert alike.explained > 0.4
    assert float(apart.weights[0].abs().max()) < 0.1 * float(alike.weights[0].abs().max())


def test_labels_without_influence_are_not_read(rng: torch.Generator) -> None:
    domain, labels = of_domain(rng, signal=0.0, count=200)
    told, known = of_domain(rng, count=200)
    assert styles._Reading.of([domain], [labels], 30, known=True).explained < 0.03
    assert styles._Reading.of([told], [known], 30, known=True).explained > 0.4


def test_a_noisy_style_is_shrunk_by_covariance(rng: torch.Generator) -> None:
    clear, labels = of_domain(rng, noise=0.0)
    noisy = type(clear)(
        [], clear.influences, clear.center, clear.spread, 3 * torch.randn(30, WIDTH, generator=rng).double()
    )
    lengths = [float(styles._Reading.of([one], [labels], 30, known=True).weights[0].norm()) for one in (clear, noisy)]
    assert lengths[1] < 0.05 * lengths[0]


@pytest.mark.parametrize(("variance", "explained"), [(1.0, 0.4), (4.0, 0.4), (10.0, 0.2)])
def test_readings_are_stretched_as_least_squares_wants(variance: float, explained: float, rng: torch.Generator) -> None:
    """Simulated shares of a known variance, and readings that explain the given part of the variance of n draws."""
    n, classes, count = 30, 10, 4000
    drawn = (1 - 1 / classes) / n / classes
    shares = (variance * drawn) ** 0.5 * torch.randn(count, classes, generator=rng)
    noise = (explained * (1 - explained) * drawn) ** 0.5 * torch.randn(count, classes, generator=rng)
    readings = explained * shares + noise
    best = float((readings * shares).sum() / readings.square().sum())
    found = styles._Reading([], explained).stretch(readings - readings.mean(0), n)
    assert found == pytest.approx(best, rel=0.05)


def test_skew_by_chance_stretches_nothing(rng: torch.Generator) -> None:
    few = styles._Reading([], 0.4)
    readings = (0.4 * 0.9 / 30 / 10) ** 0.5 * torch.randn(9, 10, generator=rng)
    assert few.stretch(readings - readings.mean(0), 30) == 1.0
    assert few.stretch(3 * (readings - readings.mean(0)), 30) > 1.5


def test_styles_are_compared_within_their_cluster(rng: torch.Generator) -> None:
    """Two clusters of eight: the observed style joins the nearer, and none where it is far from both."""
    rows = 0.1 * torch.randn(16, WIDTH, generator=rng)
    rows[8:] += 5
    reading = styles.StyleReading([], False, styles._Reading([], 0.5), 2, 0)
    for observed, wanted in ((0.05, range(8)), (5.05, range(8, 16)), (30.0, [])):
        joined = reading._cluster([torch.cat([torch.full((1, WIDTH), observed), rows])])
        assert joined.nonzero().flatten().tolist() == [0, *(1 + i for i in wanted)]


@pytest.mark.slow
def test_a_server_tells_halves_of_the_digits_apart(evaluator: Evaluator) -> None:
    """The positive control is the style of a client of five digits in both rounds, the negative one of the other five."""
    one = evaluator.style_adversaries(threat("server"), (None,), LabelShares())[0]
    adversary, attack = one.adversary, Attack.named("label_histogram").configured({"rounds": 2})
    template = one.trials[0].by_role["attack"][0].observation
    shown, truths = [], []
    for domain in adversary.domains:
        for few in (domain.labels < 5, domain.labels >= 5):
            index = few.nonzero().flatten().repeat(3)[: adversary.typical]

            def shared(simulator: Any, domain: Any = domain, index: Tensor = index) -> Any:
                return adversary.simulate(domain.images, domain.labels, index, generator(1), simulator=simulator)

            seen = adversary.view(template)
            earlier = {of.number: Earlier(Deferred(partial(shared, of.simulator)), None) for of in seen[:-1]}
            shown.append(replace(template, sent=shared(seen[-1].simulator), earlier=earlier))
            truths.append(domain.labels[index].bincount(minlength=adversary.classes) / len(index))
    found = torch.stack(list(attack.infer(adversary, shown, generator(0))))
    assert len(adversary.view_read.rounds) == 2
    true = torch.stack(truths)
    right, wrong = (float((found - shares).abs().sum(1).mean()) for shares in (true, true.flip(0)))
    unaided = float((true - 0.1).abs().sum(1).mean())
    assert right < 0.9 * unaided < wrong
