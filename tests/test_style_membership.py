"""Membership in an average of styles: moments, rounds and replayed batches, and the densities against plain ones."""

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted
from factories import fitted_once
from scipy.stats import multivariate_normal
from torch import Tensor

from fdgpriv.artifacts.moments import PAPER_EPS
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.method import Method
from fdgpriv.models.backbone import backbone
from fdgpriv.tasks.membership import Members
from fdgpriv.tasks.roc import area
from fdgpriv.threat import threat
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.trial_scores import TrialScores

membership: Any = import_module("fdgpriv.attacks._membership")
replays: Any = import_module("fdgpriv.attacks._replays")
style_pass: Any = import_module("fdgpriv.methods._style_pass")
part: Any = import_module("fdgpriv.attacks.style_membership")

D = 16


def test_a_density_is_scipy_s(rng: torch.Generator) -> None:
    rows, rest = torch.randn(7, D, generator=rng).double(), torch.randn(5, D, generator=rng).double()
    densities = replays._Gaussian(rows).log_density(rest) - D / 2 * np.log(2 * np.pi)
    expected = multivariate_normal(cov=(torch.eye(D) + rows.T @ rows).numpy()).logpdf(rest.numpy())
    assert densities.numpy() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("pooled", [False, True])
def test_moments_are_means_of_contributions(pooled: bool, rng: torch.Generator) -> None:
    mean, std = torch.randn(30, 4, generator=rng), torch.rand(30, 4, generator=rng) + 0.5
    rule, facts = ("pooled_biased" if pooled else "paper_eps"), {"client": "a", "round": 0, "granularity": "client"}
    draft = StyleDraft(mean=mean, std=std, variances=not pooled, at="layer", rule=rule, **facts)
    artifact = draft.finish()
    styles = torch.cat([mean, std], dim=1).double()
    moments = replays.StyleMoments.of(styles[:20], artifact)
    expected = moments.of_images(styles).mean(0)
    assert len(expected) == (8 if pooled else 16)
    torch.testing.assert_close(moments.of_artifact(artifact), expected, atol=1e-4, rtol=1e-4)


def test_clients_in_one_pass_have_their_styles(rng: torch.Generator) -> None:
    method = Method.named("stablefdg")(batch_size=3)
    model = torch.nn.Module()
    model.backbone = backbone("small_resnet", mean=(0.5,) * 3, std=(0.5,) * 3, rng=rng)
    images, clients = torch.rand(14, 3, 16, 16, generator=rng), torch.randperm(14, generator=rng).view(2, 7)
    together = style_pass.styles_of_clients(model, images, "layer1", PAPER_EPS, method, clients)
    for number, client in enumerate(clients):
        alone = style_pass.styles_in_batches(model, images[client], "layer1", PAPER_EPS, method)
        for moment, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(moment[number], expected, atol=1e-4, rtol=1e-4)


def worlds(
    n: int, candidates: int, variances: bool = True, rounds: int = 1, noise: float = 0.1, seed: int = 0
) -> float:
    """AUC of the ratio over averages of n of some candidates, of which one round tells mean and variance over images."""
    rng = generator(seed)
    found = []
    for _ in range(20):
        contributions = [torch.randn(candidates, D, generator=rng).double() for _ in range(rounds)]
        styles = [torch.cat([x, x.square()], 1) if variances else x for x in contributions]
        rests = [noise * torch.randn(60, one.shape[1], generator=rng).double() for one in styles]
        same = [
            SimpleNamespace(moments=Plain, contributions=s, remainders=r) for s, r in zip(styles, rests, strict=True)
        ]
        test = replays.MembershipTest(same, torch.arange(candidates), n)
        shared = [s[:n].mean(0) + noise * torch.randn(s.shape[1], generator=rng) for s in styles]
        scores = test.log_ratio(shared)[None]
        found.append(float(area(scores[:, :n], scores[:, n:])))
    return float(np.mean(found))


class Plain:
    """Artifacts that are features."""

    @staticmethod
    def of_artifact(artifact: Tensor) -> Tensor:
        return artifact


def test_more_moments_and_more_rounds_tell_more() -> None:
    least = worlds(20, 100, variances=False)
    assert worlds(20, 100) > least + 0.03
    assert worlds(20, 100, variances=False, rounds=4) > least + 0.05


def test_power_falls_with_images_and_noise() -> None:
    areas = [worlds(n, 100, noise=0.01) for n in (1, 2, 5, 20)]
    assert areas[0] == 1
    assert areas == sorted(areas, reverse=True)
    assert worlds(5, 100, noise=30.0) < 0.56  # the best test has Phi(0.046 / sqrt 2) = 0.513


def test_rounds_are_evenly_spread() -> None:
    assert part._evenly_spaced(range(16), 4) == [0, 5, 10, 15]
    assert part._evenly_spaced(range(16), 1) == [15]
    assert part._evenly_spaced(range(3), 8) == [0, 1, 2]


def test_candidates_of_one_domain_are_one_pool() -> None:
    lists = [torch.tensor(one) for one in ([0, 1, 2], [5, 6], [2, 3], [6, 7], [3, 4])]
    assert sorted(pool.tolist() for pool in membership.unions(lists)) == [[0, 1, 2, 3, 4], [5, 6, 7]]


@pytest.fixture(scope="module")
def little(tiny: Dataset) -> Fitted:
    return fitted_once(tiny, clients=12)


@pytest.fixture(scope="module")
def scores(little: Fitted) -> dict[int | None, TrialScores]:
    adversaries = little.evaluator().style_adversaries(threat("server"), (1, 2, 5, None))
    return evaluate_trials(
        Attack.named("style_membership").configured({"simulations": 60}), adversaries, (), generator(2)
    )[0]


def test_styles_of_tiny_clients_reveal_members(
    scores: dict[int | None, TrialScores],
) -> None:
    areas = [float(np.mean(scores[size].headline["attack"])) for size in (1, 2, 5, None)]
    assert areas[0] == 1
    assert min(areas) > 0.9  # tiny clients: most of what explains a style is among the candidates


def test_another_client_s_style_reveals_no_member(scores: dict[int | None, TrialScores]) -> None:
    """Targets of a domain have their few non-members in common, so that all may lie off 0.5 together."""
    for size in (1, 2, 5):
        assert abs(np.mean(scores[size].headline["other_client"]) - 0.5) < 0.1
        assert abs(np.mean(scores[size].headline["noise"]) - 0.5) < 0.04


def test_candidates_are_replayed_in_batches(evaluator: Evaluator) -> None:
    """Of clients of all candidates, whose batches are the artifact's, nothing remains; in other batches much does."""
    (asked,) = evaluator.adversaries(evaluator.series("style_statistics"), threat("server"), (None,), Members())
    observation = asked.trials[0].by_role["attack"][0].observation
    Attack.named("style_membership").configured({"simulations": 4}).infer(asked.adversary, [observation], generator(0))
    seen = asked.adversary.view(observation)
    assert asked.adversary.view_read.rounds == {one.number for one in seen}
    assert len(seen) == 2
    images = asked.adversary.candidates[observation.membership_candidates]
    replay = replays.Replays.of(asked.adversary, seen[-1], images, len(images), 1)
    channels = len(seen[-1].artifact.tensors()["mean"])
    assert replay.contributions.shape[1] == 4 * channels
    assert float(replay.remainders.abs().max()) < 1e-3


def test_adversaries_share_their_replays(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sees the last round alone, and one with other images of its own, replay nothing anew, and answer as if."""
    (asked,) = evaluator.adversaries(evaluator.series("style_statistics"), threat("server"), (None,), Members())
    observations = [asked.trials[0].by_role["attack"][0].observation]
    attack = Attack.named("style_membership").configured({"simulations": 4})
    first = replace(asked.adversary, cache=Cache[Any](), common_cache=Cache[Any]())
    whole = attack.infer(first, observations, generator(0))
    others = [replace(first, cache=Cache[Any]()), replace(first, cache=Cache[Any](), last_rounds=1)]
    expected = [attack.infer(replace(one, common_cache=Cache[Any]()), observations, generator(0)) for one in others]
    monkeypatch.setattr(replays.Replays, "of", None)
    found = [attack.infer(replace(one, cache=Cache[Any]()), observations, generator(0)) for one in others]
    assert [one.values[0].tolist() for one in found] == [one.values[0].tolist() for one in expected]
    assert found[0].values[0].tolist() == whole.values[0].tolist() != found[1].values[0].tolist()
    shifted = replace(others[0], _candidates=first.candidates.flip(3), cache=Cache[Any]())
    with pytest.raises(TypeError):  # other images are replayed
        attack.infer(shifted, observations, generator(0))
