"""Membership from several rounds of one client's styles: stacked plainly, better where rounds differ, else no better."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import Fitted, fit, shortened
from scipy.stats import norm
from torch import Tensor

from fdgpriv.artifact import ModelState, StyleDraft, StyleStatistics
from fdgpriv.exam import Question, View
from fdgpriv.exam.examination import Examination
from fdgpriv.federation import Dataset, Domain, generator
from fdgpriv.finding import AttackFinding
from fdgpriv.judge import judge
from fdgpriv.roles import Attack, Defense
from fdgpriv.style import RULES
from fdgpriv.subjects import Holding, RepeatedStyles, StyleCraft
from fdgpriv.threat import threat
from fdgpriv.transcript import Transcript

C = 8  # so that a style is 16 numbers, each of variance 1 over images


@dataclass(frozen=True, eq=False)
class Linear:
    """Takes styles that are linear in images (N, 3, 4, 4)."""

    weight: Tensor
    jointly = False

    def styles(self, images: Tensor, layer: str, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mean, std = (images.flatten(1) @ self.weight).chunk(2, dim=1)
        return mean, std

    def maps(self, images: Tensor, layer: str) -> Tensor:
        return images.new_empty(len(images), 0)


@dataclass(frozen=True)
class Noise:
    """Adds N(0, std^2) to what is shared, afresh each time."""

    std: float

    def protect(self, draft: StyleDraft, rng: torch.Generator) -> StyleStatistics:
        return draft.finish().map(lambda t: t + self.std * torch.randn(t.shape, generator=rng))


def area(rounds: int, n: int, noise: float) -> tuple[float, float]:
    """AUC of the attack on averages of n images in so many rounds with noise of their own, and the best test's.

    Over rounds of the same averages, d^2 = |x|^2 / n^2 / (1 / n + noise^2 / rounds).
    """
    rng = generator(4)
    weight = torch.linalg.qr(torch.randn(48, 2 * C, generator=rng))[0]
    nothing = torch.empty(0)
    template = StyleStatistics(
        client="a",
        round=0,
        mean=torch.zeros(C),
        std=torch.zeros(C),
        mean_var=nothing,
        std_var=nothing,
        behind="client",
        at="layer1",
        rule="paper_eps",
    )
    one = StyleCraft(cast(Any, Linear(weight)), cast(Any, Noise(noise)), template)
    craft = RepeatedStyles.of([one] * rounds)

    def images(count: int) -> Tensor:
        return torch.randn(count, 3, 4, 4, generator=rng)

    public = Domain("a", images(400), torch.zeros(400, dtype=torch.int64))
    trials, others = 40, 60
    held = Holding(images(trials * n + others), torch.zeros(trials * n + others, dtype=torch.int64))
    view = View(threat("server"), 10, ("a",), (n,), 4, (public,), craft, held.images)
    out = torch.arange(trials * n, trials * n + others)
    members = torch.arange(trials * n).split(n)
    questions = [
        Question(craft.make(held, index, rng), n, torch.zeros(1, 1, dtype=torch.int64), torch.cat([index, out]))
        for index in members
    ]
    guesses, _ = Attack.named("style_membership").configured({"practice": 200}).read(view, questions, rng)
    wins = torch.stack([(guess[:n, None] > guess[None, n:]).double().mean() for guess in guesses])
    length = (held.images[: trials * n].flatten(1) @ weight).square().sum(1)
    d = (length / n**2 / (1 / n + noise**2 / rounds)).sqrt()
    return float(wins.mean()), float(norm.cdf(d.numpy() / 2**0.5).mean())


def test_positive_control_rounds_of_independent_noise_add_up() -> None:
    """d grows almost as the square root of the number of rounds."""
    found = {rounds: area(rounds, 5, noise=2.0) for rounds in (1, 4, 9)}
    for told, best in found.values():
        assert told == pytest.approx(best, abs=0.05)
    assert found[1][0] + 0.05 < found[4][0]
    assert found[4][0] + 0.03 < found[9][0]
    d = {rounds: 2**0.5 * float(norm.ppf(told)) for rounds, (told, _) in found.items()}
    assert d[4] / d[1] == pytest.approx(2, rel=0.3)


def test_negative_control_rounds_that_repeat_themselves_do_not_help() -> None:
    once, best = area(1, 20, noise=0.0)
    assert once == pytest.approx(best, abs=0.05)
    assert area(4, 20, noise=0.0)[0] == pytest.approx(once, abs=0.02)


# On three rounds of StableFDG


@pytest.fixture(scope="module")
def thrice(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=12, settings={"rounds": "3"}, keep="all")


def stacked(fitted: Fitted) -> RepeatedStyles:
    repeated = fitted.proctor().subject("style_statistics").repeated
    assert repeated is not None
    craft = repeated.craft
    assert isinstance(craft, RepeatedStyles)
    return craft


def test_rounds_are_stacked_plainly_each_under_its_own_model(thrice: Fitted) -> None:
    """Against a loop over rounds and images, the networks built anew."""
    craft = stacked(thrice)
    held = next(iter(thrice.population.clients.values()))
    index = torch.tensor([0, 2, 3])
    mean, std = craft.styles(held.images)
    made = craft.make(Holding(held.images, held.labels), index, generator(0))
    wide = len(craft.template.mean) // 3
    for round in range(3):
        model = thrice.method.model(thrice.federation, generator(1)).eval()
        state = thrice.transcript.model_sent(round)
        assert state is not None
        state.load_into(model)
        features = thrice.method.features(model, craft.template.at)
        with torch.no_grad():
            alone = [RULES[craft.template.rule](features(image[None])) for image in held.images]
        part = slice(round * wide, (round + 1) * wide)
        for i, (one_mean, one_std) in enumerate(alone):
            torch.testing.assert_close(mean[i, part], one_mean[0], atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(std[i, part], one_std[0], atol=1e-4, rtol=1e-3)
        rule = RULES[craft.template.rule]
        together, _ = thrice.method.client_styles(model, held.images[index], craft.template.at, rule)
        torch.testing.assert_close(made.mean[part], together.mean(0), atol=1e-4, rtol=1e-3)


def test_what_crossed_is_stacked_and_cut_by_rounds(thrice: Fitted) -> None:
    repeated, craft = thrice.proctor().subject("style_statistics").repeated, stacked(thrice)
    assert repeated is not None
    sent: dict[tuple[str, int], StyleStatistics] = {}
    for record, artifact in thrice.transcript.of_kind("style_statistics"):
        if record.receiver == "server" and isinstance(artifact, StyleStatistics):
            sent[record.sender, record.round] = artifact
    for client, artifact in repeated.wire.items():
        for count in (1, 2, 3):
            kept = craft.cut(artifact, count).tensors()
            for name, moment in kept.items():
                want = torch.cat([sent[client, round].tensors()[name] for round in range(3 - count, 3)])
                assert torch.equal(moment, want)
    assert [len(craft.last(count).crafts) for count in (1, 2, 3)] == [1, 2, 3]
    assert craft.last(1).crafts[0].evidence is craft.crafts[2].evidence


def examined(fitted: Fitted, role: str, out: Path, few: bool = False) -> AttackFinding:
    attack = Attack.named("style_membership").configured({"practice": 20})
    proctor = replace(fitted.proctor(), per_client={1: 1, 5: 1})
    asked = Examination(proctor, "style_membership", attack, "style_statistics", threat(role), few, out, "cell")
    return judge({"x": asked.paper()[0]}, 0)["x"]


def test_figures_come_by_number_of_rounds_and_images(thrice: Fitted, tmp_path: Path) -> None:
    found = examined(thrice, "server", tmp_path)
    assert [(p.rounds, p.images) for p in found.rounds] == [(r, n) for r in (1, 2, 3) for n in (5, None)]
    for point in found.rounds:
        assert point.value.ci95 is not None
        assert (point.rise is None) == (point.rounds == 1)
        assert (point.p_rise_corrected is not None) == (point.rounds == 3)
        assert (point.verdict is not None) == (point.rounds == 3 and point.images is None)
    assert examined(thrice, "server", tmp_path) == found  # read from disk


def without_middle_models(transcript: Transcript) -> Transcript:
    """What `keep=ends` would have kept."""
    kept = {i: a for i, a in transcript.kept.items() if not (isinstance(a, ModelState) and a.round == 1)}
    return Transcript("ends", transcript.records, kept)


def test_rounds_whose_model_is_not_kept_are_left_out(thrice: Fitted) -> None:
    ends = replace(thrice, transcript=without_middle_models(thrice.transcript))
    assert [craft.template.round for craft in stacked(ends).crafts] == [0, 2]


def test_who_does_not_see_all_rounds_reads_one(thrice: Fitted, tmp_path: Path) -> None:
    assert examined(thrice, "client", tmp_path).rounds == ()
    assert examined(thrice, "third_party", tmp_path).rounds == ()


@pytest.mark.parametrize("method", ["ccst", "pardon"])
def test_methods_that_send_once_have_nothing_to_repeat(digits: Dataset, method: str) -> None:
    fitted = fit(shortened(digits, 16), clients=3, method=method, settings={"rounds": "2"})
    subjects: Mapping[str, Any] = fitted.proctor().subjects
    assert subjects["style_statistics"].repeated is None


def test_each_round_goes_through_the_defense_by_itself(thrice: Fitted) -> None:
    noise: Defense = cast(Any, Noise(0.5))
    craft = stacked(thrice)
    noisy = RepeatedStyles.of([replace(one, defense=noise) for one in craft.crafts])
    data = next(iter(thrice.population.clients.values()))
    held, index = Holding(data.images, data.labels), torch.arange(4)
    found = noisy.make(held, index, generator(0))
    again = generator(0)
    alone = [one.make(held, index, again) for one in noisy.crafts]
    assert torch.equal(found.mean, torch.cat([one.mean for one in alone]))
