"""Linkage: artifacts of two rounds are matched by what is their client's own in them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Evaluator, Fitted, fit
from factories import mean
from factories_scores import RUN_KEY
from fdgpriv.attacks.linkage import classify
from scipy import stats
from torch import Tensor

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.statistics import linking
from fdgpriv.tasks import linked_client
from fdgpriv.threat import threat
from fdgpriv.verdicts.attack_scores import AttackScores


def test_clients_are_linked_though_the_model_moved(rng: torch.Generator) -> None:
    own = torch.randn(12, 30, generator=rng)
    now = 5 + 3 * (own + 0.3 * torch.randn(12, 30, generator=rng))
    found = linking.likeness(now, own)
    assert found.argmax(1).tolist() == list(range(12))
    assert float(found.abs().max()) <= 1 + 1e-5


def practice(count: int, rng: torch.Generator, dim: int = 40, moved: float = 0.0) -> tuple[linking.Practice, Tensor]:
    """Artifacts of clients of three domains in two rounds, and the share of each entry that is a client's own.

    Few entries carry it; the others are noise of another scale. `moved` is added to all artifacts of the later round.
    """
    own = torch.where(torch.arange(dim) < 8, 0.9, 0.0)
    domains = torch.arange(count) % 3
    center = 5 * torch.randn(3, dim, generator=torch.Generator().manual_seed(7))[domains]
    stays = torch.randn(count, dim, generator=rng)
    now, before = (own.sqrt() * stays + (1 - own).sqrt() * torch.randn(count, dim, generator=rng) for _ in range(2))
    return linking.Practice(moved + 3 * (center + now), center + before, domains), own


def test_practice_tells_what_is_the_client_s_own(rng: torch.Generator) -> None:
    learned, own = practice(300, rng)
    assert torch.allclose(linking.correlations(learned), own, atol=0.25)
    seen, _ = practice(30, rng, moved=4.0)  # clients train otherwise than simulated ones
    hits = [
        scores.argmax(1) == torch.arange(30)
        for scores in (
            linking.log_odds(seen.now, seen.before, learned, classify),
            linking.likeness(seen.now, seen.before),
        )
    ]
    assert float(hits[0].float().mean()) > 0.9
    assert float(hits[1].float().mean()) < 0.6
    assert linking.links_more(learned, classify)


def test_the_log_odds_are_those_of_normal_densities(rng: torch.Generator) -> None:
    """Of one domain: differences between pairs equal the sums of scipy's densities of each entry's two deviations."""
    learned, _ = practice(300, rng, dim=12)
    learned = linking.Practice(learned.now, learned.before, torch.zeros(300, dtype=torch.int64))
    now, before = torch.randn(4, 12, generator=rng), torch.randn(5, 12, generator=rng)
    found = linking.log_odds(now, before, learned, classify).double().numpy()
    r = linking.correlations(learned).double().numpy()

    def deviations(rows: Tensor, known: Tensor) -> np.ndarray:
        mean = (rows.sum(0) + known.mean(0)) / (len(rows) + 1)
        squares = (rows - mean).square().sum(0) + (known - known.mean(0)).square().mean(0)
        standardised = (rows - mean) / (squares / (len(rows) + 1)).sqrt()
        return standardised.clamp(-3, 3).double().numpy()

    def odds(a: np.ndarray, b: np.ndarray) -> float:
        pairs = (
            stats.multivariate_normal([0, 0], [[1, one], [one, 1]]).logpdf([x, y])
            for x, y, one in zip(a, b, r, strict=True)
        )
        return float(sum(pairs) - stats.norm.logpdf(a).sum() - stats.norm.logpdf(b).sum())

    plain = np.array([[odds(a, b) for b in deviations(before, learned.before)] for a in deviations(now, learned.now)])
    assert np.allclose(found - found[0, 0], plain - plain[0, 0], atol=1e-3)


def test_two_domains_are_two_clients(rng: torch.Generator) -> None:
    learned, _ = practice(60, rng)
    seen, _ = practice(30, rng)
    scores = linking.log_odds(seen.now, seen.before, learned, classify)
    same = seen.domains[:, None] == seen.domains
    assert (seen.domains[scores.argmax(1)] == seen.domains).all()
    assert float(scores[same].median()) > float(scores[~same].median())


def test_practice_with_unrelated_rounds_links_nobody(rng: torch.Generator) -> None:
    now, before, *seen = (torch.randn(100, 12, generator=rng) for _ in range(4))
    domains = torch.arange(100) % 2
    hits = linking.log_odds(now, before, linking.Practice(seen[0], seen[1], domains), classify).argmax(
        1
    ) == torch.arange(100)
    assert float(hits.float().mean()) < 0.06


def test_unrelated_rounds_link_nobody(rng: torch.Generator) -> None:
    now, before = torch.randn(2, 200, 30, generator=rng)
    hits = linking.likeness(now, before).argmax(1) == torch.arange(200)
    assert float(hits.float().mean()) < 0.05
    assert linked_client._rank(torch.zeros(5), 2) == 2  # who cannot be told apart is not found


def drifting(rng: torch.Generator, rounds: int, drift: float, noise: float) -> list[Tensor]:
    """The same 40 clients' artifacts in several rounds, the latest first: what is a client's own drifts, plus noise."""
    own, found = torch.randn(40, 60, generator=rng), list[Tensor]()
    for _ in range(rounds):
        own = (1 - drift) ** 0.5 * own + drift**0.5 * torch.randn(40, 60, generator=rng)
        found.append(linking.standard(own + noise * torch.randn(40, 60, generator=rng)))
    return found[::-1]


def linked(now: Tensor, reference: Tensor) -> float:
    return float((linking.likeness(now, reference).argmax(1) == torch.arange(len(now))).float().mean())


def test_noisy_rounds_are_averaged(rng: torch.Generator) -> None:
    now, *noisy = drifting(rng, 9, drift=0.0, noise=2.2)
    decay = linking.best_decay(noisy)
    assert decay >= 0.75
    assert linked(now, linking.remembered(noisy, decay)) > linked(now, noisy[0]) + 0.25
    now, *moving = drifting(rng, 9, drift=0.7, noise=0.1)
    decay = linking.best_decay(moving)
    assert decay <= 0.5
    assert linked(now, linking.remembered(moving, decay)) > linked(now, linking.remembered(moving, 1.0)) + 0.15
    now, *unrelated = (torch.randn(40, 60, generator=rng) for _ in range(9))
    assert linked(now, linking.remembered(unrelated, linking.best_decay(unrelated))) < 0.15


def test_what_is_remembered_is_a_weighted_mean(rng: torch.Generator) -> None:
    rounds = list(torch.randn(3, 5, 4, generator=rng))
    plain = (rounds[0] + 0.5 * rounds[1] + 0.25 * rounds[2]) / 1.75
    torch.testing.assert_close(linking.remembered(rounds, 0.5), plain)
    assert torch.equal(linking.remembered(rounds, 0.0), rounds[0])


@pytest.mark.slow
def test_several_earlier_rounds_are_read(tiny: Dataset, tmp_path: Path) -> None:
    evaluator = fit(tiny, clients=6, settings={"rounds": "4"}, keep="all").evaluator()
    attack, target = Attack.named("linkage")(), evaluator.series("style_statistics")
    (one,) = evaluator.adversaries(target, threat("server"), (None,), attack.task)
    known = attack.known_rounds(one.adversary)
    assert len(one.adversary.earlier_rounds) == 3
    assert len(known) == 3
    for rows, (recorded, artifacts) in zip(known, reversed(one.adversary.earlier_rounds), strict=True):
        vectors = torch.stack([recorded.simulator.vector(artifact, None) for artifact in artifacts])
        assert torch.equal(rows, linking.standard(vectors))
    assert len(type(attack)(rounds=2).known_rounds(one.adversary)) == 2
    scores = evaluated(evaluator, tmp_path).by_size[None]
    assert mean(scores, "attack") > mean(scores, "other_client") + 0.3


def evaluated(evaluator: Evaluator, out: Path) -> AttackScores:
    trials = AttackTrials(evaluator, Attack.named("linkage")(), threat("server"))
    (found,) = AttackEvaluation(trials, "linkage", "style_statistics", True, out, "c", RUN_KEY).run().values()
    return found


def test_a_style_is_linked_to_the_first_round_s(fitted: Fitted, tmp_path: Path) -> None:
    evaluator = fitted.evaluator()
    target = evaluator.series("style_statistics")
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


@pytest.mark.slow
def test_the_positive_control_is_undefended(tiny: Dataset, tmp_path: Path) -> None:
    """The defended styles of the first round would link nobody."""
    found = evaluated(
        fit(tiny, clients=6, settings={"rounds": "2"}, defense="gaussian:epsilon=0.05").evaluator(), tmp_path
    )
    assert found.undefended is not None
    assert mean(found.by_size[None], "attack") < 0.6 < mean(found.undefended, "attack")


def test_a_style_that_crossed_once_has_no_link(tiny: Dataset, tmp_path: Path) -> None:
    once = fit(tiny, clients=6)
    found = evaluated(once.evaluator(), tmp_path)
    assert found.not_applicable == "no style statistics of the same clients crossed in two rounds that are kept"


@pytest.mark.parametrize("role", ["client", "third_party"])
def test_only_who_saw_all_rounds_links_them(fitted: Fitted, role: str) -> None:
    evaluator = fitted.shared
    target = evaluator.series("style_statistics")
    one, *_ = evaluator.adversaries(target, threat(role), (None,))
    with pytest.raises(PermissionError, match="sees_all_rounds"):
        assert one.adversary.earlier
