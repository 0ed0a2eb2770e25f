"""What an insider owes to leaked images: shares reach it, what it draws is weighed, and the claim is decided by the least."""

from collections.abc import Mapping, Sequence

import pytest
import torch
from conftest import Fitted, fit
from torch import Tensor

from fdgpriv.claims.ccst import HYPOTHESES
from fdgpriv.claims.hypothesis import Case
from fdgpriv.exam import Question, View
from fdgpriv.federation import Dataset
from fdgpriv.finding import Claim
from fdgpriv.measures.leaked_share import SHARES, leaked_share
from fdgpriv.roles import Attack
from fdgpriv.threat import threat

FIGURES = [f"leaked_{share}_{whose}" for share in ("1", "5", "10", "50", "90") for whose in ("image", "client")]


@pytest.fixture(scope="module")
def ccst(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=6, method="ccst")


class Drawing:
    """Stands for the attack: draws the mean image it holds, or the image whose style is nearest."""

    def __init__(self, gan: Attack, images: Tensor | None = None) -> None:
        self.gan, self.images = gan, images

    def __call__(self) -> "Drawing":
        return self

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[list[Tensor], Mapping[str, list[Tensor]]]:
        mean = torch.cat([domain.images for domain in view.auxiliary]).mean(0)
        if self.images is None:
            return [mean] * len(questions), {"mean_image": [mean]}
        styles = torch.cat(view.styles(self.images), dim=1)
        asked = torch.stack([view.vector(one.artifact)[: styles.shape[1]] for one in questions])
        return list(self.images[torch.cdist(asked, styles).argmin(1)]), {"mean_image": [mean]}

    def score(self, guesses: Sequence[Tensor], truths: Sequence[object]) -> Tensor:
        found: Tensor = self.gan.score(guesses, truths)  # type: ignore[arg-type]
        return found


def test_the_shares_reach_the_insider_and_never_the_targets(ccst: Fitted) -> None:
    whole = ccst.proctor()
    held = []
    for share in (0.0, 0.5, 0.9):
        (sitting,) = whole.sittings(
            whole.subject("style_statistics"), threat("insider"), (1,), reconstruction=False, leaked_share=share
        )
        held.append(sum(len(domain) for domain in sitting.view.auxiliary))
        assert {item.client for item in sitting.items} >= set(whole.population.clients)
    public = sum(len(domain) for domain in whole.population.auxiliary.values())
    clients = [*whole.population.clients.values(), *whole.population.shadows.values()]
    assert held == [public, *(public + sum(int(share * len(data)) for data in clients) for share in (0.5, 0.9))]


def test_the_mean_image_leads_nobody(ccst: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = Drawing(Attack.named("gan")())
    monkeypatch.setattr(Attack, "named", lambda name: drawing)
    found = leaked_share(ccst.proctor())
    assert {round(found[name], 9) for name in FIGURES} == {0.0}
    assert decided(found).verdict == "undecided"


def test_who_knows_every_image_by_its_style_leads_at_every_share(ccst: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    population = ccst.population
    images = torch.cat([data.images for data in (*population.clients.values(), *population.shadows.values())])
    drawing = Drawing(Attack.named("gan")(), images)
    monkeypatch.setattr(Attack, "named", lambda name: drawing)
    found = leaked_share(ccst.proctor())
    assert all(found[f"leaked_{100 * share:g}_image_low"] > 10 for share in SHARES)
    assert all(found[f"leaked_{100 * share:g}_client"] < 10 for share in SHARES)
    assert decided(found).verdict == "refuted"


def test_the_attack_itself_gives_every_figure_and_the_same_again(ccst: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgpriv.measures.leaked_share.SHARES", (0.1,))
    found = leaked_share(ccst.proctor())
    ends = {f"leaked_10_{whose}{end}" for whose in ("image", "client") for end in ("", "_low", "_high")}
    assert set(found) == {"leaked_10_count", *ends}
    assert found == leaked_share(ccst.proctor())


def test_only_of_the_method_whose_claim_it_is(tiny: Dataset) -> None:
    assert leaked_share(fit(tiny, clients=6, method="pardon").proctor()) == {}


@pytest.mark.parametrize(
    ("lows", "verdict"),
    [
        ((-1, -1, -1, -1, -1), "undecided"),
        ((-1, -1, 0.1, 0.2, 0.3), "refuted"),
        ((0.1, 0.1, 0.1, 0.2, 0.3), "refuted"),
        ((-1, -1, -1, 0.2, 0.3), "supported"),
    ],
)
def test_the_claim_is_decided_by_the_least_share_that_is_enough(lows: tuple[float, ...], verdict: str) -> None:
    facts = {}
    for share, low in zip(SHARES, lows, strict=True):
        name = f"leaked_{100 * share:g}"
        facts |= {f"{name}_count": 3.0, f"{name}_image": 1.0, f"{name}_image_low": low, f"{name}_image_high": 2.0}
    assert decided(facts).verdict == verdict


def decided(facts: Mapping[str, float]) -> Claim:
    return next(one for one in HYPOTHESES if one.id == "H-C9").claim(Case([], [], facts))
