"""The style that PARDON's server makes of all, as it is attacked: whose it is, what stands in its place, what it tells."""

from statistics import fmean

import pytest
import torch
from conftest import Fitted, shortened
from factories import evaluated, fitted_once
from torch import Tensor

from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.tasks.images import Images
from fdgpriv.threat import THREATS, threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.trial_scores import TrialScores

NAME = InterpolationStyle.kind


@pytest.fixture(scope="module")
def held_out(digits: Dataset) -> Evaluator:
    """PARDON of clients that hold out so many images that a line-up of them is no matter of one or two."""
    return fitted_once(shortened(digits, 180), clients=6, method="pardon").evaluator()


@pytest.fixture(scope="module")
def pardon(tiny: Dataset) -> Evaluator:
    return fitted_once(tiny, clients=6, method="pardon").evaluator()


def scores_of(evaluator: Evaluator, spec: str, role: str) -> dict[int | None, TrialScores]:
    return evaluated(evaluator, spec, NAME, (1, None), role=role, seed=4)


def test_it_is_what_every_client_was_sent(pardon: Evaluator) -> None:
    target = pardon.series(NAME)
    assert (target.level, target.called, target.is_global) == ("group", NAME, True)
    assert {pardon.population.main_domain(name) for name in target.receiver} == set(range(3))
    sent = [style for _, style in pardon.transcript.of_kind(NAME) if isinstance(style, InterpolationStyle)]
    for artifact in target.wire.values():
        assert torch.equal(artifact.tensors()["mean"], sent[-1].mean)
        assert torch.equal(artifact.tensors()["std"], sent[-1].std)
    assert all(target.refused(who) is None for who in THREATS.values())


def test_of_few_images_it_is_simulated_exactly(pardon: Evaluator) -> None:
    target, styles = pardon.series(NAME), pardon.series(StyleStatistics.kind).simulator
    data = next(iter(pardon.population.clients.values()))
    held, size = ClientImages(data.images, data.labels), target.simulator.typical  # type: ignore[attr-defined]
    index = torch.arange(min(len(data), size + 3))
    for some in (index[:1], index):
        made = target.simulator.simulate(ClientSample(held, some), generator(1))
        clients = [styles.simulate(ClientSample(held, part), generator(1)) for part in some.split(size)]
        blended = pardon.method.interpolation(clients)  # type: ignore[attr-defined]
        assert torch.equal(made.tensors()["mean"], blended.mean)
        assert torch.equal(made.tensors()["std"], blended.std)


def test_in_the_place_of_another_client_stand_strangers(pardon: Evaluator) -> None:
    """The artifact is one for all, so that its controls are images that nobody trained on: in pictures and line-ups too."""
    population = pardon.population
    (adversary_trials,) = pardon.adversaries(pardon.series(NAME), threat("server"), (None,), Images())
    out = torch.cat([data.held_out_images for data in population.clients.values()])
    for trial in adversary_trials.trials:
        (own,) = trial.by_role["attack"]
        assert "random_style" not in trial.by_role  # it would be drawn around the very style
        for name in ("other_client", "other_domain"):
            for ask in trial.by_role[name]:
                assert torch.equal(
                    ask.observation.artifact.tensors()["mean"], own.observation.artifact.tensors()["mean"]
                )
                assert all(_among(image, out) for image in ask.truth.images)
                named = ask.truth.candidates[torch.arange(len(ask.truth.positions)), ask.truth.positions]
                assert all(_among(image, out) for image in ask.truth.pool[named])
                assert torch.equal(ask.observation.candidates, ask.truth.candidates)
        assert all(_among(image, population.data(trial.client).images) for image in own.truth.images)
        for row, position in zip(own.truth.candidates, own.truth.positions.tolist(), strict=True):
            # nobody's but the true one: the style is of all clients
            assert [_among(image, out) for image in own.truth.pool[row]] == [i != position for i in range(len(row))]


def _among(image: Tensor, images: Tensor) -> bool:
    return bool((images == image).flatten(1).all(1).any())


@pytest.mark.parametrize(
    ("spec", "least"), [("style_membership:simulations=30", 0.95), ("identification:simulations=20", 0.9)]
)
def test_one_image_is_found_in_it(held_out: Evaluator, spec: str, least: float) -> None:
    scores = scores_of(held_out, spec, "server")
    assert fmean(scores[1].headline["attack"]) > least
    whole = scores[None].headline
    assert abs(fmean(whole["attack"]) - fmean(whole["other_client"])) < 0.25


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "role"), [("gan:steps=1", "client"), ("style_inversion:steps=1", "third_party")])
def test_what_is_drawn_of_it_is_as_near_to_strangers(pardon: Evaluator, spec: str, role: str) -> None:
    whole = scores_of(pardon, spec, role)[None].headline
    lead = [a - b for a, b in zip(whole["attack"], whole["other_client"], strict=True)]
    assert abs(fmean(lead)) < 2  # decibels


def test_other_methods_have_no_such_target(fitted: Fitted) -> None:
    assert NAME not in fitted.evaluator().artifact_series


# The median that the defense `interpolate` sends in place of other clients' styles


@pytest.mark.parametrize("role", ["insider", "client", "third_party"])
def test_trust_is_calibrated_on_simulated_clients(pardon: Evaluator, role: str) -> None:
    """All simulated clients of an adversary make one artifact, of which each is asked for its own images."""
    for adversary_trials in pardon.adversaries(pardon.series(NAME), threat(role), (None,), Images()):
        artifacts = [trial.scored.observation.artifact for trial in adversary_trials.calibration]
        assert len(artifacts) == 12
        assert len({id(one.tensors()["mean"]) for one in artifacts}) == 1
        sent = next(iter(pardon.series(NAME).wire.values())).tensors()["mean"]
        assert not torch.equal(artifacts[0].tensors()["mean"], sent)
        assert len({trial.scored.truth.images.sum().item() for trial in adversary_trials.calibration}) > 1


@pytest.fixture(scope="module")
def interpolating(tiny: Dataset) -> Evaluator:
    return fitted_once(tiny, clients=6, defense="interpolate").evaluator()


def test_the_median_of_a_defense_is_a_target_too(interpolating: Evaluator) -> None:
    target, own = interpolating.series(NAME), interpolating.series(StyleStatistics.kind)
    assert (target.level, target.is_global, set(target.wire)) == ("group", True, set(own.wire))
    assert not own.receiver  # no client receives another's
    for key in ("mean", "std", "mean_var", "std_var"):
        each = torch.stack([style.tensors()[key] for style in own.wire.values()]).T.tolist()
        plain = torch.tensor([(sorted(row)[2] + sorted(row)[3]) / 2 for row in each])
        for artifact in target.wire.values():
            assert torch.allclose(artifact.tensors()[key], plain)


def test_a_simulated_median_is_that_of_clients(interpolating: Evaluator) -> None:
    target, styles = interpolating.series(NAME), interpolating.series(StyleStatistics.kind).simulator
    data = next(iter(interpolating.population.clients.values()))
    held, size = ClientImages(data.images, data.labels), target.simulator.typical  # type: ignore[attr-defined]
    assert size == sorted(len(one) for one in interpolating.population.clients.values())[3]
    index = torch.arange(min(len(data), size + 3))
    for some in (index[:1], index):
        made = target.simulator.simulate(ClientSample(held, some), generator(1)).tensors()
        clients = [styles.simulate(ClientSample(held, part), generator(1)).tensors() for part in some.split(size)]
        for key in ("mean", "std", "mean_var", "std_var"):
            assert torch.allclose(made[key], torch.stack([one[key] for one in clients]).quantile(0.5, dim=0))


@pytest.mark.slow
def test_a_simulated_median_of_one_image_shows_it(interpolating: Evaluator) -> None:
    scores = scores_of(interpolating, "style_membership:simulations=12", "client")
    assert fmean(scores[1].headline["attack"]) > 0.9
    whole = scores[None].headline
    assert abs(fmean(whole["attack"]) - fmean(whole["other_client"])) < 0.25
