"""Simulated clients that cannot stand for the attacked ones: noticed, said, and no leak is then found absent."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Evaluator, Fitted
from scipy import stats
from test_grades import question_of
from test_judge import CHANCE, attack_scores, reader, scores
from torch import Tensor, nn

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Domain
from fdgpriv.evaluation.planted import undecided
from fdgpriv.evaluation.simulation_fit import (
    few_public_images,
    few_public_images_note,
    outside,
    unlike_changes,
    unlike_shares,
)
from fdgpriv.federation.partition import Population
from fdgpriv.threat import threat
from fdgpriv.verdicts.attack_scores import ARTIFACT_FREE, AttackScores
from fdgpriv.verdicts.attack_tests import early_evidence
from fdgpriv.verdicts.trial_scores import TrialScores

MISFIT = "193 public images of scan are too few"


def domain(name: str, count: int) -> Domain:
    return Domain(name, torch.zeros(count, 3, 4, 4, dtype=torch.uint8), torch.zeros(count, dtype=torch.long))


def test_twice_a_client_s_images_are_wanted_of_each_domain() -> None:
    assert few_public_images([domain("a", 204), domain("b", 400)], 102) is None
    assert few_public_images([], 102) is None
    few = few_public_images([domain("a", 204), domain("b", 193), domain("c", 195)], 102)
    assert few == "193 public images of b are too few to simulate clients of 102 images, want at least 204"


def with_public(population: Population, count: int) -> Population:
    """The population with `count` public images of each domain."""
    return replace(population, auxiliary={name: domain(name, count) for name in population.auxiliary})


def test_attacks_that_weigh_artifacts_are_named_before_the_training(fitted: Fitted) -> None:
    population = fitted.population
    typical = int(np.median([len(data) for data in population.clients.values()]))
    attacks = [Attack.named(name)() for name in ("label_histogram", "style_membership")]
    note = few_public_images_note(with_public(population, 2 * typical - 1), attacks)
    assert note is not None
    assert "label_histogram can find leaks, but not that there is none" in note
    assert few_public_images_note(with_public(population, 2 * typical + 2), attacks) is None
    assert few_public_images_note(with_public(population, 3), attacks[1:]) is None
    many = few_public_images_note(with_public(population, 3), [Attack.named(name)() for name in Attack.names()])
    assert "more attacks can find leaks" in str(many)


@pytest.mark.parametrize(("role", "few"), [("server", True), ("client", True), ("third_party", False)])
def test_each_adversary_s_images_are_counted(evaluator: Evaluator, role: str, few: bool) -> None:
    """The images of the unseen domain, which third parties hold, are many."""
    small = replace_public(evaluator, 30)
    series = small.series("style_statistics")
    adversaries = small.adversaries(series, threat(role), (1, None), Attack.named("label_histogram").task)
    assert [adversary.misfit is not None for adversary in adversaries] == [few] * len(adversaries)


def replace_public(evaluator: Evaluator, count: int) -> Evaluator:
    """An evaluator of the same training whose adversaries have the first `count` public images of each domain."""
    public = {name: images.part(0, count) for name, images in evaluator.population.auxiliary.items()}
    population = replace(evaluator.population, auxiliary=public)
    return Evaluator(
        population, evaluator.method, evaluator.federation, evaluator.defense, evaluator.transcript, evaluator.seed
    )


def weighing(mean: float, misfit: str | None = MISFIT, single: float = 2.0) -> AttackScores:
    """An attack with this mean lead over controls at 0, which finds every planted leak."""
    whole = scores(0, mean, CHANCE, spread=0.1)
    whole.misfit = misfit
    if mean == 0:
        whole.headline |= dict.fromkeys(ARTIFACT_FREE, whole.headline["attack"])
    positive = scores(1, single, CHANCE, per_client=4)
    return attack_scores(whole, positive, reader(scopes=("client",)), planted={"client": 1.0})


def test_no_leak_is_not_found_with_simulated_clients_that_misfit() -> None:
    for mean, misfit, verdict, because in (
        (0.0, None, "no_leak_found", None),
        (0.0, MISFIT, "inconclusive", "weak_attack"),
        (3.0, MISFIT, "leak", None),
    ):
        (question,) = question_of(weighing(mean, misfit))
        assert (question.verdict, question.inconclusive_because) == (verdict, because)
        assert (MISFIT in question.reason) == (because is not None)
    (question,) = question_of(weighing(0.0, single=0.0))
    assert "does not succeed on its positive control" in question.reason
    assert MISFIT in question.reason


def test_no_leak_is_planted_where_none_can_be_found_absent() -> None:
    for misfit, planted in ((None, True), (MISFIT, False)):
        attack = weighing(0.0, misfit)
        found = undecided(attack, early_evidence(attack, 0), 1)
        assert found == (["client"] if planted else [])


def test_a_misfit_is_stored_with_the_scores() -> None:
    stored = replace(TrialScores(["a"], ["a"], {"attack": [0.5]}), misfit=MISFIT)
    read = TrialScores.read(
        [
            {
                "role": "attack",
                "crossed_with": "",
                "repeat": 0,
                "metric": "auc",
                "unit": ["a"],
                "client": ["a"],
                "value": [0.5],
            }
        ],
        [{"low": None, "high": None, "n": None, "reason": None, **row} for row in stored.aggregate_rows()],
        "auc",
    )
    assert read == stored


# Simulated clients against the recorded ones


def test_the_range_is_student_s_prediction_interval() -> None:
    rng = np.random.default_rng(0)
    simulated = torch.tensor(rng.normal(size=12))
    n, mean, sd = 12, float(simulated.mean()), float(simulated.std())
    half = float(stats.t.ppf(0.995, n - 1)) * sd * (1 + 1 / n) ** 0.5
    for shift, two_sided, one_sided in (
        (-1.01, True, True),
        (-0.99, False, False),
        (0.99, False, False),
        (1.01, True, False),
    ):
        recorded = torch.tensor([mean + shift * half] * 2 + [-99.0, 99.0, mean + shift * half])  # the median counts
        assert (outside("loss", recorded, simulated) is not None) is two_sided
        assert (outside("loss", recorded, simulated, two_sided=False) is not None) is one_sided
    assert outside("loss", recorded + 99, simulated[:3]) is None  # too few for a range
    assert outside("loss", torch.tensor([torch.inf]), simulated) is None


def test_a_range_of_99_percent_rarely_misses() -> None:
    rng = np.random.default_rng(0)
    draws = [torch.tensor(rng.normal(size=13)) for _ in range(400)]
    assert sum(outside("loss", draw[:1], draw[1:]) is not None for draw in draws) <= 0.02 * 400


class Changes:
    """Artifacts (8,): a change (6,), and the logits of the model for every image (2,)."""

    def vector(self, artifact: Tensor, received_model: Any) -> Tensor:
        return artifact[:6]

    def model_of(self, artifact: Tensor, received_model: Any) -> nn.Module:
        class Constant(nn.Module):
            def forward(self, images: Tensor) -> Tensor:
                return artifact[6:].expand(len(images), 2)

        return Constant()


CHANGE = torch.tensor([1.0, -1.0, 2.0, 0.5, 1.0, 3.0])
LOGITS = torch.tensor([0.0, 1.0])


def clients(changes: Sequence[Tensor], domains: int = 3) -> list[Any]:
    """Clients of each domain in turn, which share these changes."""
    return [
        SimpleNamespace(
            observation=SimpleNamespace(artifact=change, received_model=object()),
            truth=SimpleNamespace(domain=i % domains),
        )
        for i, change in enumerate(changes)
    ]


@pytest.mark.parametrize("domains", [1, 3])
def test_trainings_unlike_the_recorded_ones_are_noticed(domains: int) -> None:
    """Another direction, size or loss."""
    rng = torch.Generator().manual_seed(0)

    def noisy(change: Tensor, count: int, logits: Tensor = LOGITS) -> list[Any]:
        artifact = torch.cat([change, logits])
        return clients([artifact + 0.1 * torch.randn(8, generator=rng) for _ in range(count)], domains)

    public, simulated = [domain(name, 20) for name in "abc"], noisy(CHANGE, 12)
    turned = CHANGE * torch.tensor([-1.0, -1.0, 1.0, 1.0, 1.0, 1.0])
    for recorded, figure in (
        (noisy(CHANGE, 9), None),
        (noisy(-CHANGE, 9), "cosine"),
        (noisy(turned, 9), "cosine"),
        (noisy(2 * CHANGE, 9), "size"),
        (noisy(CHANGE / 2, 9), "size"),
        (noisy(CHANGE, 9, -LOGITS), "loss"),
        ([], None),
    ):
        clause = unlike_changes(Changes(), recorded, simulated, public)  # type: ignore[arg-type]
        assert (clause is None) == (figure is None), clause
        assert figure is None or figure in str(clause)


def test_nearly_equal_simulated_clients_leave_a_tolerance() -> None:
    equal = torch.full((12,), 0.5)
    assert outside("cosine", torch.tensor([0.46]), equal) is None
    assert outside("cosine", torch.tensor([0.44]), equal) is not None


def test_label_shares_unlike_those_of_simulated_clients_are_noticed() -> None:
    rng = np.random.default_rng(0)
    near, far = (list(torch.tensor(rng.dirichlet([a] * 5, size=12))) for a in (50.0, 1.0))
    assert unlike_shares(near, near[6:]) is None
    assert "label shares" in str(unlike_shares(far, near))
    assert unlike_shares([], near) is unlike_shares(far, []) is None
