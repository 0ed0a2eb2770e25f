"""What an insider owes to leaked images: shares reach it, what it draws is weighed, and the claim is decided by the least."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from conftest import Fitted
from factories import fitted_once
from factories_findings import finding
from scipy import stats
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.attack import Attack
from fdgpriv.claims.ccst import CLAIM_TESTS
from fdgpriv.claims.claim_test import Case
from fdgpriv.claims.leaked_share import SHARES, _lead, leaked_share
from fdgpriv.data.dataset import Dataset
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.run import Claim
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.tasks.images import Images
from fdgpriv.tasks.task import Baselines, Predictions
from fdgpriv.threat import threat
from fdgpriv.verdicts.trial_scores import TrialScores

FIGURES = [f"leaked_{share}_{whose}" for share in ("1", "5", "10", "50", "90") for whose in ("image", "client")]


# Without leaked images neither attack draws the image behind a single image's style
WITHOUT_LEAKED = [
    finding(name, "psnr", 13.4, "no_leak_found", secret="content", artifact="style_statistics:image")
    for name in ("gan", "style_inversion")
]


@pytest.fixture(scope="module")
def ccst(tiny: Dataset) -> Fitted:
    return fitted_once(tiny, clients=6, method="ccst")


class AgainstTheMean(Images):
    """Images, with the mean public image as the only artifact-free baseline."""

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        return {"mean_image": [adversary.public_images[0].mean(0)]}


class Drawing:
    """Stands for the attack: draws the mean image it holds, or the image whose style is nearest."""

    task = AgainstTheMean()
    tasks = (task,)

    def __init__(self, images: Tensor | None = None) -> None:
        self.images = images

    def __call__(self) -> "Drawing":
        return self

    def name(self) -> str:
        return "drawing"

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> list[Tensor]:
        if self.images is None:
            return [adversary.public_images[0].mean(0)] * len(observations)
        styles = torch.cat(adversary.styles(self.images), dim=1)
        asked = torch.stack([adversary.vector(one.artifact)[: styles.shape[1]] for one in observations])
        return list(self.images[torch.cdist(asked, styles).argmin(1)])


def test_the_shares_reach_the_insider_alone(ccst: Fitted) -> None:
    whole = ccst.evaluator()
    held = []
    for share in (0.0, 0.5, 0.9):
        (adversary_trials,) = whole.adversaries(
            whole.series("style_statistics"), threat("insider"), (1,), leaked_share=share
        )
        held.append(sum(len(domain) for domain in adversary_trials.adversary.auxiliary))
        assert {trial.client for trial in adversary_trials.trials} >= set(whole.population.clients)
    public = sum(len(domain) for domain in whole.population.auxiliary.values())
    public -= sum(len(domain) for domain in adversary_trials.adversary.held_back)
    clients = [*whole.population.clients.values(), *whole.population.shadows.values()]
    assert held == [public, *(public + sum(int(share * len(data)) for data in clients) for share in (0.5, 0.9))]


def test_the_mean_image_leads_nobody(ccst: Fitted) -> None:
    found = leaked_share(ccst.evaluator(), Drawing())
    assert {round(found[name], 9) for name in FIGURES} == {0.0}
    assert max(found[f"{name}_low"] for name in FIGURES) <= 1e-9
    assert decided(found).verdict == "undecided"


def test_the_lead_is_over_every_control_of_the_insider() -> None:
    """Nobody is granted the label, and the truth's neighbours are bounds."""
    clients = ["a", "a", "b", "b", "c", "c"]
    headline = {
        "attack": [15.0, 15.2, 15.1, 14.9, 15.3, 15.0],
        "mean_image": [13.5, 13.6, 13.4, 13.5, 13.6, 13.5],
        "domain_mean": [14.0, 16.0, 13.0, 14.0, 15.0, 12.0],
        "class_mean": [16.5] * 6,
        "nearest_own": [17.0] * 6,
    }
    found = _lead(TrialScores(units=[str(i) for i in range(6)], clients=clients, headline=headline))
    each = {
        name: mean_interval(np.subtract(headline["attack"], headline[name]), np.asarray(clients))
        for name in ("mean_image", "domain_mean")
    }
    assert found.value == each["domain_mean"].value == pytest.approx(1.083, abs=1e-3)
    assert found.lower == min(one.lower or 0 for one in each.values()) == each["domain_mean"].lower
    assert found.upper == min(one.upper or 0 for one in each.values()) == each["mean_image"].upper


def test_a_perfect_attack_leads_at_every_share(ccst: Fitted) -> None:
    population = ccst.population
    every = (*population.clients.values(), *population.shadows.values(), *population.auxiliary.values())
    images = torch.cat([data.images for data in every])
    found = leaked_share(ccst.evaluator(), Drawing(images))
    assert all(found[f"leaked_{100 * share:g}_image_low"] > 10 for share in SHARES)
    assert all(found[f"leaked_{100 * share:g}_client"] < 10 for share in SHARES)
    assert decided(found).verdict == "refuted"


@pytest.mark.slow
def test_the_attack_gives_every_figure_again(ccst: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgpriv.claims.leaked_share.SHARES", (0.1,))
    found = leaked_share(ccst.evaluator(), Attack.named("gan")())
    ends = {f"leaked_10_{whose}{end}" for whose in ("image", "client") for end in ("", "_low", "_high", "_n")}
    assert set(found) == {"leaked_10_count", *ends}
    assert found == leaked_share(ccst.evaluator(), Attack.named("gan")())


def test_only_of_the_method_whose_claim_it_is(tiny: Dataset) -> None:
    assert leaked_share(fitted_once(tiny, clients=6, method="pardon").evaluator(), Attack.named("gan")()) == {}


def test_the_least_share_that_is_enough_decides() -> None:
    for *lows, high, verdict in (
        (-1, -1, -1, -1, -1, 0.9, "undecided"),
        (-1, -1, 0.1, 0.2, 0.3, 2.0, "refuted"),
        (0.1, 0.1, 0.1, 0.2, 0.3, 2.0, "refuted"),
        (-1, -1, -1, 0.2, 0.3, 0.9, "supported"),
        (-1, -1, -1, 0.2, 0.3, 2.0, "undecided"),  # at small shares a lead that matters is not excluded
    ):
        facts = {}
        for share, low in zip(SHARES, lows, strict=True):
            name = f"leaked_{100 * share:g}"
            facts |= {f"{name}_count": 3.0, f"{name}_image": 1.0, f"{name}_image_low": low, f"{name}_image_high": high}
            facts[f"{name}_image_n"] = 30.0
        assert decided(facts, *WITHOUT_LEAKED).verdict == verdict
        assert decided(facts).verdict == ("undecided" if verdict == "supported" else verdict)


def test_the_claim_is_corrected_for_the_small_shares() -> None:
    """Student's t over the clients for each share, then Simes' p over the three."""
    half = float(stats.t.ppf(0.975, 29)) * 0.5  # of a standard error of 0.5 dB
    facts = {f"leaked_{100 * share:g}_count": 3.0 for share in SHARES}
    for share, lead in zip(SHARES, (0.2, 0.4, 1.5, 3.0, 3.0), strict=True):
        name = f"leaked_{100 * share:g}_image"
        facts |= {name: lead, f"{name}_low": lead - half, f"{name}_high": lead + half, f"{name}_n": 30.0}
    (rule,) = (one.rule for one in CLAIM_TESTS if one.id == "H-C9")
    found = rule(Case([], [], facts))
    assert (found.verdict, found.leak) == ("refuted", True)
    assert found.p == pytest.approx(3 * float(stats.t.sf(3.0, 29)))
    assert found.reason.startswith("10 % leaked (3 images of a client) is enough for an insider")
    none = rule(
        Case([], [], facts | {f"leaked_1_image{end}": 9.0 for end in ("", "_low", "_high")} | {"leaked_1_count": 0})
    )
    assert none.reason.startswith("no leaked image is needed (1 % is 0 images of a client) for an insider")


def decided(facts: Mapping[str, float], *attacks: AttackFinding) -> Claim:
    one = next(one for one in CLAIM_TESTS if one.id == "H-C9")
    return one.claim(one.rule(Case(attacks, [], facts)))
