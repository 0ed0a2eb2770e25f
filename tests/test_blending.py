"""Blending: attacks that know all, half or nothing are worth no less than what their adversary knows without artifacts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from conftest import Evaluator, mostly_slow
from factories import SURE
from scipy import stats

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.artifact_weight import artifact_weights, prior_of
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials, CalibrationTrial, ScoredObservation
from fdgpriv.tasks.client_size import SizeOfClient
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.tasks.images import Images
from fdgpriv.tasks.label_shares import LabelShares
from fdgpriv.tasks.task import Predictions, Task
from fdgpriv.threat import Capability, threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.trial_scores import TrialScores

# The weight


def asked(
    evaluator: Evaluator, role: str, task: Task, sizes: Sequence[int | None] = (1, None)
) -> list[AdversaryTrials]:
    return evaluator.style_adversaries(threat(role), sizes, task)


@pytest.mark.parametrize("role", ["server", "third_party"])
def test_images_are_trusted_as_far_as_they_are_right(evaluator: Evaluator, role: str, rng: torch.Generator) -> None:
    """PSNR falls with noise, and so does the weight; of an attack that is right half-way it is 0.5."""
    (one,) = asked(evaluator, role, Images(), (1,))
    true = [trial.scored.truth.images[0] for trial in one.calibration]

    def weight(predictions: Sequence[Prediction], trials: Sequence[CalibrationTrial] = one.calibration) -> float:
        return artifact_weights(Images(), one.adversary, trials, predictions, one.shifted)[1]

    falling = [
        weight([(image + std * torch.randn(3, 32, 32, generator=rng)).clamp(0, 1) for image in true])
        for std in (0.0, 0.3, 0.6, 9.0)
    ]
    assert falling[0] == 1 > falling[1] > falling[3] == 0
    assert falling == sorted(falling, reverse=True)
    drawn, half_way = [torch.rand(3, 32, 32, generator=rng) for _ in true], []
    for image, trial in zip(drawn, one.calibration, strict=True):
        mean = prior_of(Images(), one.adversary, image, trial.scored.truth.domain)
        known = replace(trial.scored.truth, source=(0.5 * image + 0.5 * mean)[None], index=torch.tensor([0]))
        half_way.append(replace(trial, scored=ScoredObservation(trial.scored.observation, known)))
    assert weight(drawn, half_way) == 0.5


@dataclass(frozen=True)
class Noise(Attack):
    """Predicts noise of the form of its task."""

    asks: Task
    black_or_white: bool = False
    reads = (StyleStatistics,)
    threats = ("server",)

    @property
    def task(self) -> Task:  # type: ignore[override]
        return self.asks

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        side = adversary.image_size
        form: Mapping[type[Task], tuple[int, ...]] = {
            Images: (3, side, side),
            DomainLabel: (len(adversary.sources),),
            LabelShares: (adversary.classes,),
            SizeOfClient: (),
        }
        shapes = [form.get(type(self.task), one.membership_candidates.shape) for one in observations]
        drawn = [torch.rand(shape, generator=rng) for shape in shapes]
        drawn = [one.round() for one in drawn] if self.black_or_white else drawn
        scale = {LabelShares: lambda one: one / one.sum(), SizeOfClient: lambda one: 1 + 900 * one}
        return Predictions([scale.get(type(self.task), lambda one: one)(one) for one in drawn])


@dataclass(frozen=True)
class NoiseWithout(Noise):
    """Predicts the same noise without any artifact."""

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        found = super().infer(adversary, observations, rng)
        return replace(found, baselines={"unconditional": [found.values[0]]})


def test_priors_are_weighed_as_predictions(evaluator: Evaluator) -> None:
    scores = evaluate_trials(NoiseWithout(Images()), asked(evaluator, "server", Images(), (1,)), (), generator(2))[0][1]
    assert scores.artifact_weight == 0
    prior_prediction = np.mean(scores.headline["unconditional"])
    assert prior_prediction == pytest.approx(np.mean(scores.headline["attack"]))
    assert prior_prediction > np.mean(scores.headline["noise"]) + 1


@pytest.mark.parametrize("role", mostly_slow(["server", "client", "third_party"], ["server"]))
@pytest.mark.parametrize("task", [Images(), DomainLabel(), LabelShares(), SizeOfClient()], ids=lambda task: task.name())
def test_noise_is_no_worse_than_the_prior(evaluator: Evaluator, task: Task, role: str) -> None:
    adversaries = asked(evaluator, role, task, (None,) if task.hides_size else (1, None))
    blended = evaluate_trials(Noise(task), adversaries, (), generator(2))[0]
    raw = evaluate_trials(Noise(task), [replace(one, calibration=()) for one in adversaries], (), generator(2))[0]
    for size, scores in blended.items():
        assert raw[size].artifact_weight is None
        assert scores.artifact_weight is not None
        below = p_below(task, adversaries, size, scores)
        assert below > SURE
        if isinstance(task, Images | SizeOfClient):  # noise alone is
            assert scores.artifact_weight <= 0.25
            assert p_below(task, adversaries, size, raw[size]) < 0.01


def p_below(task: Task, adversaries: Sequence[AdversaryTrials], size: int | None, scores: TrialScores) -> float:
    """One-sided p that the attack does worse than without artifacts, over clients."""
    alone: list[float] = []
    for one in adversaries:
        like = Noise(task).infer(
            one.adversary, [trial.by_role["attack"][0].observation for trial in one.trials], generator(0)
        )
        for trial, form in zip(one.trials, like, strict=True):
            if trial.size == size:
                prior_prediction = prior_of(task, one.adversary, form, trial.truth.domain)
                assert prior_prediction is not None
                alone.append(float(task.score([prior_prediction], [trial.truth])))
    lost = (1 if task.higher_leaks else -1) * (np.asarray(alone) - np.asarray(scores.headline["attack"]))
    by_client = [lost[[name == client for name in scores.clients]].mean() for client in sorted(set(scores.clients))]
    return float(stats.ttest_1samp(by_client, 0, alternative="greater").pvalue) if np.any(by_client) else 1.0


@pytest.mark.parametrize("role", ["server", "client", "third_party", "insider"])
def test_controls_know_the_domain_as_the_attack_does(evaluator: Evaluator, role: str) -> None:
    """Where nothing is trusted, attack and controls all predict the mean of the target's domain, or of all images."""
    adversaries = asked(evaluator, role, Images(), (1,))
    knows = Capability.KNOWS_DOMAIN in threat(role).capabilities
    assert knows is (role in ("server", "insider"))
    for one in adversaries:
        scores, predicted = evaluate_trials(Noise(Images(), black_or_white=True), [one], (), generator(2))
        assert scores[1].artifact_weight == 0
        for (known, predictions), trial in zip(predicted[1], one.trials, strict=True):
            assert known is trial.truth
            name = evaluator.population.sources[known.domain]
            own = [d.images for d in one.adversary.auxiliary if d.name == name or not knows]
            wanted = torch.cat(own).mean(0)
            for control in ("attack", "random_style", "other_client", "other_domain"):
                torch.testing.assert_close(predictions[control][0], wanted)


def test_without_the_domain_the_prior_is_the_mean(evaluator: Evaluator) -> None:
    adversary = asked(evaluator, "server", Images(), (1,))[0].adversary
    less = replace(adversary.threat, capabilities=adversary.threat.capabilities - {Capability.KNOWS_DOMAIN})
    for d, domain in enumerate(adversary.auxiliary):
        known = prior_of(Images(), adversary, domain.images[0], d)
        unknown = prior_of(Images(), replace(adversary, threat=less), domain.images[0], d)
        torch.testing.assert_close(known, domain.images.mean(0))
        torch.testing.assert_close(unknown, torch.cat([own.images for own in adversary.auxiliary]).mean(0))
