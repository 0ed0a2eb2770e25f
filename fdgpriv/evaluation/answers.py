"""Answers to a task: the attack infers once per adversary, and each answer is blended with the adversary's prior."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fdgpriv.adversary import Observation, Prediction
from fdgpriv.attack import Attack
from fdgpriv.evaluation.artifact_weight import (
    ArtifactWeights,
    artifact_weights,
    blended,
    prior_of,
    weight_at,
)
from fdgpriv.evaluation.checked_predictions import checked_predictions
from fdgpriv.evaluation.copied_adversary import inferred
from fdgpriv.evaluation.simulation_fit import unlike_shares
from fdgpriv.evaluation.trial import AdversaryTrials, CalibrationTrial, ScoredObservation, Trial
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Predictions, Task
from fdgpriv.verdicts.attack_scores import KNOWN_DOMAIN_CONTROLS

ScoredAnswer = tuple[str, Prediction, GroundTruth]  # role, prediction, and the truth that it is scored against


@dataclass(frozen=True, eq=False)
class Inferred:
    """An attack's predictions for one adversary.

    Attributes:
        adversary_trials: The adversary and its trials.
        observations: The distinct observations of all trials.
        predictions: A prediction for each observation, and the attack's predictions without any artifact.
        calibration: The simulated artifacts that the adversary calibrates with.
        calibration_predictions: The predictions for these.
    """

    adversary_trials: AdversaryTrials
    observations: Sequence[Observation]
    predictions: Predictions
    calibration: Sequence[CalibrationTrial]
    calibration_predictions: Sequence[Prediction]

    @classmethod
    def of(
        cls,
        attack: Attack,
        adversary_trials: AdversaryTrials,
        detailed_sizes: Sequence[int | None],
        rng: torch.Generator,
    ) -> "Inferred":
        """Runs the attack once, on the observations of all trials and of the calibration."""
        adversary, truth_of = adversary_trials.adversary, _truths(adversary_trials.trials, detailed_sizes)
        calibration: list[CalibrationTrial] = []
        if any(task.weighed for task in attack.tasks):
            sizes = {trial.size for trial in adversary_trials.trials}
            calibration = [trial for trial in adversary_trials.calibration if trial.size in sizes]
        observations = [*truth_of, *(trial.scored.observation for trial in calibration)]
        truths = [*truth_of.values(), *(trial.scored.truth for trial in calibration)]
        answer = inferred(attack, adversary, observations, rng)
        predictions = checked_predictions(attack.name(), answer, attack.task, adversary, truths)
        values, count = list(predictions.values), len(truth_of)
        return cls(
            adversary_trials, list(truth_of), replace(predictions, values=values[:count]), calibration, values[count:]
        )


def _truths(trials: Sequence[Trial], detailed_sizes: Sequence[int | None]) -> dict[Observation, GroundTruth]:
    """By distinct observation of these trials, its ground truth; crossed observations only at `detailed_sizes`."""
    scored = [scored for trial in trials for observations in trial.by_role.values() for scored in observations]
    scored += [scored for trial in trials if trial.size in detailed_sizes for scored in trial.crossed.values()]
    truth_of: dict[Observation, GroundTruth] = {}
    for scored_observation in scored:
        truth_of.setdefault(scored_observation.observation, scored_observation.truth)
    return truth_of


def _unlike_shares(task: Task, inferred: Inferred, answers: Mapping[Observation, Prediction]) -> str | None:
    """Why label shares inferred of whole clients are unlike those of simulated ones, in one clause; None if they are alike."""
    recorded = [
        answers[trial.by_role["attack"][0].observation]
        for trial in inferred.adversary_trials.trials
        if trial.size is None
    ]
    simulated = [
        task.answer(prediction)
        for trial, prediction in zip(inferred.calibration, inferred.calibration_predictions, strict=True)
        if trial.size is None
    ]
    return unlike_shares(recorded, simulated)


@dataclass(frozen=True, eq=False)
class TaskAnswers:
    """One adversary's answers to one task.

    Attributes:
        task: The task.
        inferred: The attack's predictions for this adversary.
        by_observation: The answer to each observation, before blending.
        baselines: By control, predictions without any artifact.
        weights: Weights of artifacts in the blends; empty if answers are not blended.
        misfit: Why the simulated clients, on which weights of whole clients were chosen, cannot stand for these; None if they
            can.
    """

    task: Task
    inferred: Inferred
    by_observation: Mapping[Observation, Prediction]
    baselines: Baselines
    weights: ArtifactWeights
    misfit: str | None = None

    @classmethod
    def of(cls, task: Task, inferred: Inferred, rng: torch.Generator) -> "TaskAnswers":
        """Answers the task from the attack's predictions, and calibrates the weights of artifacts."""
        adversary, predictions = inferred.adversary_trials.adversary, inferred.predictions
        weights = artifact_weights(
            task,
            adversary,
            inferred.calibration if task.weighed else (),
            [task.answer(prediction) for prediction in inferred.calibration_predictions],
            inferred.adversary_trials.shifted,
        )
        answers = [task.answer(prediction) for prediction in predictions.values]
        by_observation = dict(zip(inferred.observations, answers, strict=True))
        baselines = task.baselines(adversary, replace(predictions, values=answers), rng)
        baselines |= {role: list(map(task.answer, values)) for role, values in predictions.baselines.items()}
        misfit = inferred.adversary_trials.misfit
        if weights and misfit is None and task.secret == "labels":
            misfit = _unlike_shares(task, inferred, by_observation)
        return cls(task, inferred, by_observation, baselines, weights, misfit)

    def weight(self, size: int | None) -> float | None:
        """The weight of artifacts of this many images; None if answers are not blended."""
        return weight_at(self.weights, size)

    def of_artifact(self, scored: ScoredObservation, trial: Trial, size: int | None) -> Prediction:
        """The blended answer to this observation, for an artifact of `size` images."""
        return self._blended(self.by_observation[scored.observation], trial, size)

    def with_artifacts(self, trial: Trial) -> list[ScoredAnswer]:
        """The answers to the trial's artifact and to its control artifacts."""
        return [
            (role, self.of_artifact(scored, trial, 1 if role == "autoencoder" else trial.size), scored.truth)
            for role, observations in trial.by_role.items()
            for scored in observations
        ]

    def without_artifact(self, trial: Trial) -> list[ScoredAnswer]:
        """Predictions without any artifact: baselines of the task and the attack, and given predictions of the trial.

        Baselines by domain or class apply only to trials of that domain or class. The attack's baselines are blended, as its
        answers are.
        """
        known_domain = self.inferred.adversary_trials.adversary.sources[trial.truth.domain]
        known_values = dict.fromkeys(KNOWN_DOMAIN_CONTROLS, known_domain)
        if trial.size == 1:
            known_values["class_mean"] = str(int(trial.truth.labels[0]))
        answers: list[ScoredAnswer] = []
        for key, predictions in self.baselines.items():
            role, _, value = key.partition(":")
            if value and known_values.get(role) != value:
                continue
            if role in self.inferred.predictions.baselines:
                predictions = [self._blended(prediction, trial, trial.size) for prediction in predictions]
            answers += [(role, prediction, trial.truth) for prediction in predictions]
        return answers + [(role, *answer) for role, given in trial.given.items() for answer in given]

    def is_informative(self, trial: Trial, controls: Sequence[ScoredAnswer]) -> bool:
        """Whether the answer to the trial's artifact differs from all of these controls and the adversary's prior."""
        answer = self.of_artifact(trial.by_role["attack"][0], trial, trial.size)
        prior = prior_of(self.task, self.inferred.adversary_trials.adversary, answer, trial.truth.domain)
        priors = [] if prior is None else [prior]
        priors += [prediction for role, prediction, _ in controls if role not in trial.given]
        return not self.task.uninformative(answer, priors)

    def _blended(self, prediction: Prediction, trial: Trial, size: int | None) -> Prediction:
        """The prediction blended with the adversary's prior, at the weight of artifacts of `size` images."""
        if not self.weights:
            return prediction
        prior = prior_of(self.task, self.inferred.adversary_trials.adversary, prediction, trial.truth.domain)
        return blended(self.task, prediction, prior, self.weight(size))
