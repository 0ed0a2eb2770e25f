"""Linkage: artifacts of two rounds are matched by what is their client's own in them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Evaluator, Fitted, fit
from factories import mean
from scipy import stats
from sklearn.covariance import LedoitWolf

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.statistics import linking
from fdgpriv.tasks import linked_client
from fdgpriv.threat import threat


def test_clients_are_linked_though_the_model_moved_and_scaled_everything(rng: torch.Generator) -> None:
    own = torch.randn(12, 30, generator=rng)
    now = 5 + 3 * (own + 0.3 * torch.randn(12, 30, generator=rng))
    found = linking.likeness(now, own)
    assert found.argmax(1).tolist() == list(range(12))
    assert float(found.abs().max()) <= 1 + 1e-5


def in_another_frame(count: int, rng: torch.Generator, frame: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs of one client's artifacts (count, 12), where the second round mixes the first one's axes."""
    own = torch.randn(count, 12, generator=rng)
    return 2 + own @ frame + 0.3 * torch.randn(count, 12, generator=rng), own


def test_practice_links_what_the_model_turned_to_other_axes(rng: torch.Generator) -> None:
    frame = torch.linalg.qr(torch.randn(12, 12, generator=rng)).Q
    (now, before), seen = in_another_frame(30, rng, frame), in_another_frame(200, rng, frame)
    hits = [
        scores.argmax(1) == torch.arange(30)
        for scores in (linking.likelihood_ratio(now, before, *seen), linking.likeness(now, before))
    ]
    assert float(hits[0].float().mean()) > 0.9
    assert float(hits[1].float().mean()) < 0.4
    assert linking.learned_links_more(*seen)


def test_the_learned_score_is_a_likelihood_ratio(rng: torch.Generator) -> None:
    """Differences between entries equal those of scipy's densities of the fitted Gaussian and of its two halves."""
    seen = in_another_frame(300, rng, torch.eye(12))
    now, before = in_another_frame(5, rng, torch.eye(12))
    found = linking.likelihood_ratio(now, before, *seen).double().numpy()
    spreads = [rows.std(0) + 1e-6 * rows.std() + 1e-12 for rows in seen]
    pairs = torch.cat([(rows - rows.mean(0)) / spread for rows, spread in zip(seen, spreads, strict=True)], 1)
    covariance = LedoitWolf(assume_centered=True).fit(pairs.double().numpy()).covariance_
    centred = (
        (rows - seen_rows.mean(0)) / spread
        for rows, seen_rows, spread in zip((now, before), seen, spreads, strict=True)
    )
    x, y = (rows.clamp(-3, 3).double().numpy() for rows in centred)
    whole = stats.multivariate_normal(np.zeros(24), covariance)
    left, right = (stats.multivariate_normal(np.zeros(12), c) for c in (covariance[:12, :12], covariance[12:, 12:]))
    plain = np.array([[whole.logpdf(np.r_[a, b]) - left.logpdf(a) - right.logpdf(b) for b in y] for a in x])
    assert np.allclose(found - found[0, 0], plain - plain[0, 0], atol=1e-4)


def test_practice_with_unrelated_rounds_links_nobody(rng: torch.Generator) -> None:
    now, before, *seen = (torch.randn(100, 12, generator=rng) for _ in range(4))
    hits = linking.likelihood_ratio(now, before, *seen).argmax(1) == torch.arange(100)
    assert float(hits.float().mean()) < 0.06


def test_unrelated_rounds_link_nobody(rng: torch.Generator) -> None:
    now, before = torch.randn(2, 200, 30, generator=rng)
    hits = linking.likeness(now, before).argmax(1) == torch.arange(200)
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
