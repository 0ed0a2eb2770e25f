"""Membership from several rounds of one client's styles: stacked plainly, better where rounds differ, else no better."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import Fitted, fit, shortened
from factories import inferred
from factories_core import observation, style
from scipy.stats import norm
from torch import Tensor

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.moments import RULES
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.defense import Defense
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.verdicts import judge
from fdgpriv.federation.transcript import Transcript
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.targets.repeated_styles import RepeatedStyles
from fdgpriv.targets.simulator import HeldImages
from fdgpriv.targets.style import StyleSimulator
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

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
class Noise(Defense):
    """Adds N(0, std^2) to what is shared, afresh each time."""

    std: float

    def protect(self, draft: StyleDraft, rng: torch.Generator, received: None = None) -> StyleStatistics:
        return draft.finish().map(lambda t: t + self.std * torch.randn(t.shape, generator=rng))


def area(rounds: int, n: int, noise: float) -> tuple[float, float]:
    """AUC of the attack on averages of n images in so many rounds with noise of their own, and the best test's.

    Over rounds of the same averages, d^2 = |x|^2 / n^2 / (1 / n + noise^2 / rounds).
    """
    rng = generator(4)
    weight = torch.linalg.qr(torch.randn(48, 2 * C, generator=rng))[0]
    template = style("a", channels=C, variances=False)
    one = StyleSimulator(cast(Any, Linear(weight)), Noise(noise), template)
    simulator = RepeatedStyles.of([one] * rounds)

    def images(count: int) -> Tensor:
        return torch.randn(count, 3, 4, 4, generator=rng)

    public = Domain("a", images(400), torch.zeros(400, dtype=torch.int64))
    trials, others = 40, 60
    held = HeldImages(images(trials * n + others), torch.zeros(trials * n + others, dtype=torch.int64))
    adversary = Adversary(threat("server"), 10, ("a",), (n,), 4, (public,), simulator, held.images)
    out = torch.arange(trials * n, trials * n + others)
    members = torch.arange(trials * n).split(n)
    observations = [observation(simulator.make(held, index, rng), n, torch.cat([index, out])) for index in members]
    predictions, _ = inferred(
        Attack.named("style_membership").configured({"simulations": 200}), adversary, observations, rng
    )
    wins = torch.stack([(prediction[:n, None] > prediction[None, n:]).double().mean() for prediction in predictions])
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


@pytest.fixture(scope="module")
def thrice(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=6, settings={"rounds": "3"}, keep="all")


def stacked(fitted: Fitted) -> RepeatedStyles:
    repeated = fitted.evaluator().target("style_statistics").repeated
    assert repeated is not None
    simulator = repeated.simulator
    assert isinstance(simulator, RepeatedStyles)
    return simulator


def test_rounds_are_stacked_plainly_each_under_its_own_model(thrice: Fitted) -> None:
    """Against a loop over rounds and images, the networks built anew."""
    simulator = stacked(thrice)
    held = next(iter(thrice.population.clients.values()))
    index = torch.tensor([0, 2, 3])
    mean, std = simulator.styles(held.images)
    made = simulator.make(HeldImages(held.images, held.labels), index, generator(0))
    wide = len(simulator.template.mean) // 3
    for round in range(3):
        model = thrice.method.model(thrice.federation, generator(1)).eval()
        state = thrice.transcript.model_sent(round)
        assert state is not None
        state.load_into(model)
        styles = thrice.method.disclosure().styles
        features = styles.features(model, simulator.template.at)
        with torch.no_grad():
            alone = [RULES[simulator.template.rule](features(image[None])) for image in held.images]
        part = slice(round * wide, (round + 1) * wide)
        for i, (one_mean, one_std) in enumerate(alone):
            torch.testing.assert_close(mean[i, part], one_mean[0], atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(std[i, part], one_std[0], atol=1e-4, rtol=1e-3)
        rule = RULES[simulator.template.rule]
        together, _ = styles.of_client(model, held.images[index], simulator.template.at, rule)
        torch.testing.assert_close(made.mean[part], together.mean(0), atol=1e-4, rtol=1e-3)


def test_what_crossed_is_stacked_and_cut_by_rounds(thrice: Fitted) -> None:
    repeated, simulator = thrice.evaluator().target("style_statistics").repeated, stacked(thrice)
    assert repeated is not None
    sent: dict[tuple[str, int], StyleStatistics] = {}
    for record, artifact in thrice.transcript.of_kind("style_statistics"):
        if record.receiver == "server" and isinstance(artifact, StyleStatistics):
            sent[record.sender, record.round] = artifact
    for client, artifact in repeated.wire.items():
        for count in (1, 2, 3):
            kept = simulator.cut(artifact, count).tensors()
            for name, moment in kept.items():
                want = torch.cat([sent[client, round].tensors()[name] for round in range(3 - count, 3)])
                assert torch.equal(moment, want)
    assert [len(simulator.last(count).rounds) for count in (1, 2, 3)] == [1, 2, 3]
    assert simulator.last(1).rounds[0].evidence is simulator.rounds[2].evidence


def scored(fitted: Fitted, role: str, out: Path, few: bool = False) -> AttackScores:
    attack = Attack.named("style_membership").configured({"simulations": 8})
    evaluator = replace(fitted.evaluator(), per_client={1: 1, 5: 1})
    trials = AttackTrials(evaluator, attack, threat(role))
    asked = AttackEvaluation(trials, "style_membership", "style_statistics", few, out, "cell")
    (scores,) = asked.run().values()
    return scores


def evaluated(fitted: Fitted, role: str, out: Path, few: bool = False) -> AttackFinding:
    return judge({"run/x": scored(fitted, role, out, few)}, 0).findings["run/x"]


def test_figures_come_by_number_of_rounds_and_images(thrice: Fitted, tmp_path: Path) -> None:
    found = evaluated(thrice, "server", tmp_path)
    assert [(p.rounds, p.images) for p in found.rounds] == [(r, n) for r in (1, 2, 3) for n in (5, None)]
    for point in found.rounds:
        assert point.value.ci95 is not None
        assert (point.rise is None) == (point.rounds == 1)
        assert (point.p_rise is not None) == (point.rounds == 3)
        assert (point.verdict is not None) == (point.rounds == 3 and point.images is None)
    assert evaluated(thrice, "server", tmp_path) == found  # read from disk
    scores = scored(thrice, "server", tmp_path)
    for rounds, size, at in scores.by_rounds:  # the same images in the same answers; others with more rounds
        assert (at.shared_variance["one_round"] > 0) == (rounds > 1)
        if rounds > 1:
            assert scores.rise(size, at).shared.tolist() == [at.shared_variance["one_round"]]


def test_rounds_whose_model_is_not_kept_are_left_out(thrice: Fitted) -> None:
    """As `keep=ends` would have it."""
    made = thrice.transcript
    kept = {i: a for i, a in made.kept.items() if not (isinstance(a, ModelState) and a.round == 1)}
    ends = replace(thrice, transcript=Transcript("ends", made.records, kept))
    assert [simulator.template.round for simulator in stacked(ends).rounds] == [0, 2]


def test_who_does_not_see_all_rounds_reads_one(thrice: Fitted, tmp_path: Path) -> None:
    assert evaluated(thrice, "client", tmp_path).rounds == ()
    assert evaluated(thrice, "third_party", tmp_path).rounds == ()


@pytest.mark.parametrize("method", ["ccst", "pardon"])
def test_methods_that_send_once_have_nothing_to_repeat(digits: Dataset, method: str) -> None:
    fitted = fit(shortened(digits, 16), clients=3, method=method, settings={"rounds": "2"})
    targets: Mapping[str, Any] = fitted.evaluator().targets
    assert targets["style_statistics"].repeated is None


def test_each_round_goes_through_the_defense_by_itself(thrice: Fitted) -> None:
    noise: Defense = cast(Any, Noise(0.5))
    simulator = stacked(thrice)
    noisy = RepeatedStyles.of([replace(one, defense=noise) for one in simulator.rounds])
    data = next(iter(thrice.population.clients.values()))
    held, index = HeldImages(data.images, data.labels), torch.arange(4)
    found = noisy.make(held, index, generator(0))
    again = generator(0)
    alone = [one.make(held, index, again) for one in noisy.rounds]
    assert torch.equal(found.mean, torch.cat([one.mean for one in alone]))
