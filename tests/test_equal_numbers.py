"""What is drawn from clients' and single images' styles is compared on equal numbers, and told from what anybody could draw."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from conftest import Fitted, fit
from torch import Tensor

from fdgpriv.claims.hypothesis import Case
from fdgpriv.claims.pardon import HYPOTHESES
from fdgpriv.exam import Question, View
from fdgpriv.federation import Dataset
from fdgpriv.measures.equal_numbers import equal_numbers
from fdgpriv.metrics.pixels import EXACT_DB
from fdgpriv.metrics.realism import features, resized, small_fid
from fdgpriv.models.extractor import digits_extractor
from fdgpriv.roles import Attack


@pytest.fixture(scope="module")
def pardon(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=6, method="pardon")


class Oracle:
    """Stands for the attack: draws exactly what is behind single images' styles, and grey of all else."""

    def __init__(self, fitted: Fitted) -> None:
        self.images = torch.cat([data.images for data in fitted.population.clients.values()])
        self.sittings: list[View] = []

    def __call__(self) -> "Oracle":
        return self

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[list[Tensor], Mapping[str, list[Tensor]]]:
        self.sittings.append(view)
        alone = torch.arange(len(self.images))[:, None]
        labels = torch.zeros(len(self.images), dtype=torch.int64)
        known = torch.stack([view.vector(view.make(self.images, labels, one, rng)) for one in alone])
        drawn = []
        for question in questions:
            far = (known - view.vector(question.artifact)).square().sum(1)
            exact = question.images_behind == 1
            drawn.append(self.images[far.argmin()] if exact else torch.full_like(self.images[0], 0.5))
        return drawn, {"mean_image": [torch.zeros_like(self.images[0])]}


def test_whoever_draws_the_image_itself_leads_and_the_rest_does_not(
    pardon: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle(pardon)
    monkeypatch.setattr(Attack, "named", lambda name: oracle)
    found = equal_numbers(pardon.proctor())
    for role in ("third_party", "client"):
        assert found[f"{role}_sample_psnr"] == EXACT_DB
        assert found[f"{role}_client_psnr"] == found[f"{role}_random_psnr"] < 15
        assert found[f"{role}_lead"] == pytest.approx(EXACT_DB - found[f"{role}_client_psnr"])
        assert found[f"{role}_lead_low"] < found[f"{role}_lead"] < found[f"{role}_lead_high"]
        for metric in ("fid", "kid", "log_is", "is_over_k"):
            assert found[f"{role}_sample_{metric}"] == pytest.approx(found[f"{role}_real_{metric}"])
            assert found[f"{role}_client_{metric}"] == pytest.approx(found[f"{role}_random_{metric}"])
        assert found[f"{role}_client_log_is"] == pytest.approx(0, abs=1e-4)
        assert found[f"{role}_n"] == len(pardon.population.clients)
    held = {tuple(domain.name for domain in view.auxiliary) for view in oracle.sittings}
    assert held == {(pardon.population.target.name,), *((name,) for name in pardon.population.sources)}


@pytest.mark.slow
def test_the_attack_itself_gives_every_figure(pardon: Fitted) -> None:
    found = equal_numbers(pardon.proctor())
    assert all(math.isfinite(figure) for figure in found.values())
    assert found == equal_numbers(pardon.proctor())
    claim = next(one for one in HYPOTHESES if one.id == "H-P1").claim(Case([], [], found))
    assert len(claim.evidence) == 12  # of two roles five sets and a lead


def test_only_of_the_method_whose_comparison_it_is(tiny: Dataset) -> None:
    assert equal_numbers(fit(tiny, clients=6, method="fedavg").proctor()) == {}


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


def test_one_image_has_no_fid(digits: Dataset) -> None:
    images = digits.domains[0].images
    assert small_fid(images[:1], images[1:9], digits_extractor()).value is None
