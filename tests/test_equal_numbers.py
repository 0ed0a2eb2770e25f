"""What is drawn from clients' and single images' styles is compared on equal numbers, and told from what anybody could draw."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from conftest import Fitted
from factories import fitted_once
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.attack import Attack
from fdgpriv.claims.claim_test import Case
from fdgpriv.claims.equal_numbers import equal_numbers
from fdgpriv.claims.pardon import CLAIM_TESTS
from fdgpriv.data.dataset import Dataset
from fdgpriv.metrics.pixels import EXACT_DB
from fdgpriv.metrics.realism import features, resized, small_fid
from fdgpriv.models.extractor import digits_extractor
from fdgpriv.tasks.images import Images


@pytest.fixture(scope="module")
def pardon(tiny: Dataset) -> Fitted:
    return fitted_once(tiny, clients=6, method="pardon")


class Oracle:
    """Stands for the attack: draws exactly what is behind single images' styles, and grey of all else."""

    task = Images()

    def __init__(self, fitted: Fitted) -> None:
        self.images = torch.cat([data.images for data in fitted.population.clients.values()])
        self.adversaries: list[Adversary] = []

    def __call__(self) -> "Oracle":
        return self

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> list[Tensor]:
        self.adversaries.append(adversary)
        single = torch.arange(len(self.images))[:, None]
        labels = torch.zeros(len(self.images), dtype=torch.int64)
        known = torch.stack([adversary.vector(adversary.simulate(self.images, labels, one, rng)) for one in single])
        drawn = []
        for observation in observations:
            far = (known - adversary.vector(observation.artifact)).square().sum(1)
            exact = observation.n_images == 1
            drawn.append(self.images[far.argmin()] if exact else torch.full_like(self.images[0], 0.5))
        return drawn


def test_drawing_the_image_itself_leads(pardon: Fitted) -> None:
    oracle = Oracle(pardon)
    found = equal_numbers(pardon.evaluator(), oracle)
    for role in ("third_party", "client"):
        assert found[f"{role}_sample_psnr"] == EXACT_DB
        assert found[f"{role}_client_psnr"] == found[f"{role}_random_psnr"] < 15
        assert found[f"{role}_lead"] == pytest.approx(EXACT_DB - found[f"{role}_client_psnr"])
        assert found[f"{role}_lead_low"] < found[f"{role}_lead"] < found[f"{role}_lead_high"]
        for metric in ("fid", "kid", "log_is", "is_over_k"):
            assert found[f"{role}_sample_{metric}"] == pytest.approx(found[f"{role}_real_{metric}"])
            assert found[f"{role}_client_{metric}"] == pytest.approx(found[f"{role}_random_{metric}"])
        assert found[f"{role}_client_kid_low"] < found[f"{role}_client_kid"] < found[f"{role}_client_kid_high"]
        assert found[f"{role}_client_log_is"] == pytest.approx(0, abs=1e-4)
        assert found[f"{role}_n"] == len(pardon.population.clients)
    held = {tuple(domain.name for domain in adversary.auxiliary) for adversary in oracle.adversaries}
    assert held == {(pardon.population.target.name,), *((name,) for name in pardon.population.sources)}


@pytest.mark.slow
def test_the_attack_itself_gives_every_figure(pardon: Fitted) -> None:
    found = equal_numbers(pardon.evaluator(), Attack.named("gan")())
    assert all(math.isfinite(figure) for figure in found.values())
    assert found == equal_numbers(pardon.evaluator(), Attack.named("gan")())
    decision = next(one for one in CLAIM_TESTS if one.id == "H-P1").rule(Case([], [], found))
    assert len(decision.evidence) == 12  # of two roles five sets and a lead


def test_only_of_the_method_whose_comparison_it_is(tiny: Dataset) -> None:
    assert equal_numbers(fitted_once(tiny, clients=6, method="fedavg").evaluator(), Attack.named("gan")()) == {}


@pytest.mark.parametrize(("n", "m"), [(8, 8), (40, 25)])
def test_a_small_fid_is_frechet_s_distance(n: int, m: int, digits: Dataset) -> None:
    ours, theirs = (resized(domain.images[:k]) for domain, k in zip(digits.domains, (n, m), strict=False))
    extractor = digits_extractor()
    a, b = (features(images, extractor).numpy() for images in (ours, theirs))
    scale, axes = np.linalg.eigh(np.cov(a.T))
    root = axes * np.sqrt(scale.clip(0)) @ axes.T
    shared = np.sqrt(np.linalg.eigvalsh(root @ np.cov(b.T) @ root).clip(0)).sum()
    slow = np.square(a.mean(0) - b.mean(0)).sum() + np.trace(np.cov(a.T) + np.cov(b.T)) - 2 * shared
    found = small_fid(ours, theirs, extractor)
    assert found.value == pytest.approx(float(slow), rel=1e-3, abs=1e-3)
    assert found.measured.n == min(n, m)
    assert small_fid(ours[:1], theirs, extractor).value is None  # of one image there is none
