"""Public images that are too few to simulate clients: said before the training; a leak is then not found absent."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import Evaluator, Fitted
from test_grades import question_of
from test_judge import CHANCE, attack_scores, reader, scores

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Domain
from fdgpriv.evaluation.planted import undecided
from fdgpriv.evaluation.simulation_fit import few_public_images, few_public_images_note
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


@pytest.mark.parametrize(("role", "few"), [("server", True), ("client", True), ("third_party", False)])
def test_each_adversary_s_images_are_counted(evaluator: Evaluator, role: str, few: bool) -> None:
    """The images of the unseen domain, which third parties hold, are many."""
    small = replace_public(evaluator, 30)
    series = small.series("style_statistics")
    adversaries = small.adversaries(series, threat(role), (1,), Attack.named("label_histogram").task)
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
