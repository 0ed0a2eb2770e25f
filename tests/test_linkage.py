"""Linkage: artifacts of two rounds are matched by what is their client's own in them."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Evaluator, Fitted, fit
from factories import mean

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.tasks import linked_client
from fdgpriv.threat import threat

linkage: Any = import_module("fdgpriv.attacks.linkage")


def test_clients_are_linked_though_the_model_moved_and_scaled_everything(rng: torch.Generator) -> None:
    own = torch.randn(12, 30, generator=rng)
    now = 5 + 3 * (own + 0.3 * torch.randn(12, 30, generator=rng))
    found = linkage.likeness(now, own)
    assert found.argmax(1).tolist() == list(range(12))
    assert float(found.abs().max()) <= 1 + 1e-5


def test_unrelated_rounds_link_nobody(rng: torch.Generator) -> None:
    now, before = torch.randn(2, 200, 30, generator=rng)
    hits = linkage.likeness(now, before).argmax(1) == torch.arange(200)
    assert float(hits.float().mean()) < 0.05
    assert linked_client._rank(torch.zeros(5), 2) == 2  # who cannot be told apart is not found


def evaluated(evaluator: Evaluator, out: Path) -> AttackScores:
    trials = AttackTrials(evaluator, Attack.named("linkage")(), threat("server"))
    return AttackEvaluation(trials, "linkage", "style_statistics", True, out, "c").run()


def test_a_style_is_linked_to_its_client_s_style_of_the_first_round(fitted: Fitted, tmp_path: Path) -> None:
    evaluator = fitted.evaluator()
    target = evaluator.target("style_statistics")
    assert {artifact.round for artifact in target.earlier.values()} == {0}
    assert {artifact.round for artifact in target.wire.values()} == {1}
    found = evaluated(evaluator, tmp_path)
    scores = found.by_size[None]
    assert set(scores.clients) == set(target.earlier)  # no shadow: they shared nothing before
    assert found.chance == 1 / len(target.earlier)
    assert mean(scores, "attack") > 0.4
    for name in ("noise", "mean_image", "random_style", "other_client", "other_domain"):
        assert mean(scores, name) < mean(scores, "attack") - 0.2
    assert found.undefended is not None
    assert found.positive() == found.undefended


def test_a_style_that_crossed_once_is_linked_to_nothing(tiny: Dataset, tmp_path: Path) -> None:
    once = fit(tiny, clients=6)
    found = evaluated(once.evaluator(), tmp_path)
    assert found.not_applicable == "no style statistics of the same clients crossed in two rounds that are kept"


@pytest.mark.parametrize("role", ["client", "third_party"])
def test_only_who_saw_all_rounds_links_them(fitted: Fitted, role: str) -> None:
    evaluator = fitted.evaluator()
    target = evaluator.target("style_statistics")
    one, *_ = evaluator.adversaries(target, threat(role), (None,))
    with pytest.raises(PermissionError, match="sees_all_rounds"):
        assert one.adversary.earlier
