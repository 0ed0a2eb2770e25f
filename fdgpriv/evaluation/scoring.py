"""Runs an attack on its trials: lays out what it reads, infers once, calibrates, and scores each task that this answers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import torch
from torch import Tensor

from fdgpriv.adversary import Observation, Prediction
from fdgpriv.attack import Attack
from fdgpriv.evaluation.artifact_weight import artifact_weights, blended, weight_at, without_artifact
from fdgpriv.evaluation.checked_predictions import checked_predictions
from fdgpriv.evaluation.trial import AdversaryTrials, CalibrationTrial, Trial
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Predictions, Task, TrialAnswers
from fdgpriv.verdicts.attack_scores import KNOWN_DOMAIN_CONTROLS
from fdgpriv.verdicts.trial_scores import TrialScores, averaged_scores

DESCRIBED_ROLES = ("attack", "mean_image", "half_uniform", "random_style", "other_client", "autoencoder")

ScoresByTask = dict[str, TrialScores]  # by the name of the task
# Of one trial: the truth, and by role one prediction with the truth that it is scored against.
PredictedTrial = tuple[GroundTruth, dict[str, tuple[Prediction, GroundTruth]]]
PredictedBySize = dict[int | None, list[PredictedTrial]]


def evaluate_trials(
    attack: Attack, adversaries: Sequence[AdversaryTrials], described: Sequence[int | None], rng: torch.Generator
) -> tuple[dict[int | None, TrialScores], PredictedBySize]:
    """The scores of the attack's own task by size, and its predictions; arguments as of `evaluate_tasks`."""
    by_size, predicted = evaluate_tasks(attack, adversaries, described, rng, [attack.task])
    return {size: scores[attack.task.name()] for size, scores in by_size.items()}, predicted


def evaluate_tasks(
    attack: Attack,
    adversaries: Sequence[AdversaryTrials],
    described: Sequence[int | None],
    rng: torch.Generator,
    tasks: Sequence[Task] = (),
) -> tuple[dict[int | None, ScoresByTask], PredictedBySize]:
    """Scores by size and task, all from the same predictions; and for each size the first task's, by trial, for figures.

    Args:
        attack: Predicts the secret of its task from each adversary's observations.
        adversaries: Adversaries and their trials.
        described: The sizes for which the further metrics, and every client's artifact read as every other's, are
            scored too.
        rng: Of the attack's own randomness.
        tasks: That the predictions answer; by default all of the attack's.
    """
    scorings = [_TaskScoring(task, described) for task in tasks or attack.tasks]
    for adversary_trials in adversaries:
        inferred = _Inferred.of(attack, adversary_trials, described, rng)
        state = rng.get_state()
        for number, scoring in enumerate(scorings):  # each draws the same noise; only the first moves `rng` on
            scoring.add(inferred, torch.Generator().set_state(state) if number else rng)
    by_size: dict[int | None, ScoresByTask] = {}
    for scoring in scorings:
        for size, scores in scoring.scores().items():
            by_size.setdefault(size, {})[scoring.task.name()] = scores
    in_order = sorted(by_size.items(), key=lambda entry: float("inf") if entry[0] is None else entry[0])
    return dict(in_order), scorings[0].predicted()


def averaged(repeats: Sequence[ScoresByTask]) -> ScoresByTask:
    """By task, the mean scores of several repeats of one attack on the same trials."""
    return {task: averaged_scores([by_task[task] for by_task in repeats]) for task in repeats[0]}


@dataclass(frozen=True, eq=False)
class _Inferred:
    """What an attack infers for one adversary.

    Attributes:
        adversary_trials: The adversary and its trials.
        observations: Of all trials; one that serves several controls is read once.
        predictions: Of these, with what the attack predicts without any artifact.
        calibration: What the adversary calibrates with.
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
        described: Sequence[int | None],
        rng: torch.Generator,
    ) -> "_Inferred":
        """Runs the attack once, on the observations of all trials and on those of the calibration."""
        trials = adversary_trials.trials
        scored = [scored for trial in trials for several in trial.by_role.values() for scored in several]
        scored += [scored for trial in trials if trial.size in described for scored in trial.crossed.values()]
        truths: dict[Observation, GroundTruth] = {}
        for trial_observation in scored:
            truths.setdefault(trial_observation.observation, trial_observation.truth)
        sizes = {trial.size for trial in trials}
        is_weighed = any(task.weighed for task in attack.tasks)
        calibration = [trial for trial in adversary_trials.calibration if trial.size in sizes] if is_weighed else []
        observations = [*truths, *(trial.scored.observation for trial in calibration)]
        all_truths = [*truths.values(), *(trial.scored.truth for trial in calibration)]
        adversary = adversary_trials.adversary
        answer = attack.infer(adversary, observations, rng)
        predictions = checked_predictions(attack.name(), answer, attack.task, adversary, all_truths)
        values, count = list(predictions.values), len(truths)
        return cls(
            adversary_trials, list(truths), replace(predictions, values=values[:count]), calibration, values[count:]
        )


@dataclass(eq=False)
class _TaskScoring:
    """The answers to one task by size and role (``attack``, controls, bounds), each blended with the adversary's prior.

    Attributes:
        task: The task.
        described: Sizes that are scored by the further metrics, too.
    """

    task: Task
    described: Sequence[int | None]

    def __post_init__(self) -> None:
        self._trials: dict[int | None, list[Trial]] = defaultdict(list)
        self._weights: dict[int | None, list[float]] = defaultdict(list)
        self._informative: set[int | None] = (
            set()
        )  # sizes at which a prediction says more than is known without artifact
        self._answers, self._crossed = (
            defaultdict[int | None, dict[str, TrialAnswers]](lambda: defaultdict(list)) for _ in range(2)
        )

    def add(self, inferred: _Inferred, rng: torch.Generator) -> None:
        """Adds the answers of one adversary: calibrates the weight of artifacts, and blends its predictions with its prior."""
        task, adversary_trials, predictions = self.task, inferred.adversary_trials, inferred.predictions
        adversary = adversary_trials.adversary
        weights = artifact_weights(
            task,
            adversary,
            inferred.calibration if task.weighed else (),
            [task.answer(prediction) for prediction in inferred.calibration_predictions],
            adversary_trials.shifted,
        )
        predictions = replace(predictions, values=[task.answer(prediction) for prediction in predictions.values])
        by_observation = dict(zip(inferred.observations, predictions.values, strict=True))
        by_attack = {
            role: [task.answer(prediction) for prediction in several]
            for role, several in inferred.predictions.baselines.items()
        }
        baselines = task.baselines(adversary, predictions, rng) | by_attack

        def weighed(prediction: Prediction, trial: Trial, size: int | None) -> Prediction:
            if not weights:
                return prediction
            prior = without_artifact(task, adversary, prediction, trial.truth.domain)
            return blended(task, prediction, prior, weight_at(weights, size))

        for trial in adversary_trials.trials:
            if not task.askable(trial.truth):
                continue
            size, number = trial.size, len(self._trials[trial.size])
            self._trials[size].append(trial)
            if (weight := weight_at(weights, size)) is not None:
                self._weights[size].append(weight)
            rows = [
                (role, weighed(prediction, trial, size) if role in by_attack else prediction, truth)
                for role, prediction, truth in _predictions_without_artifact(trial, baselines, adversary.sources)
            ]
            if size not in self._informative:
                prediction = weighed(by_observation[trial.by_role["attack"][0].observation], trial, size)
                prior = without_artifact(task, adversary, prediction, trial.truth.domain)
                priors = [] if prior is None else [prior]
                priors += [prediction for role, prediction, _ in rows if role not in trial.given]
                if not task.uninformative(prediction, priors):
                    self._informative.add(size)
            rows += [
                (
                    role,
                    weighed(by_observation[scored.observation], trial, 1 if role == "autoencoder" else size),
                    scored.truth,
                )
                for role, several in trial.by_role.items()
                for scored in several
            ]
            for role, prediction, truth in rows:
                if task.askable(truth):
                    self._answers[size][role].append((number, prediction, truth))
            for client, scored in trial.crossed.items() if size in self.described else ():
                answer = weighed(by_observation[scored.observation], trial, size)
                self._crossed[size][client].append((number, answer, scored.truth))

    def scores(self) -> dict[int | None, TrialScores]:
        """By size, the scores of all answers."""
        return {size: self._scores_at(size) for size in self._trials}

    def predicted(self) -> PredictedBySize:
        """By size, what is predicted of each trial."""
        return {
            size: [
                (trial.truth, {role: rows[0][1:] for role in by_role if (rows := _of_trial(by_role[role], number))})
                for number, trial in enumerate(self._trials[size])
            ]
            for size, by_role in self._answers.items()
        }

    def _scores_at(self, size: int | None) -> TrialScores:
        trials, weights, by_role = self._trials[size], self._weights[size], self._answers[size]
        scores = TrialScores(
            units=[trial.unit for trial in trials],
            clients=[trial.client for trial in trials],
            artifact_used=size in self._informative,
            fingerprint=_fingerprint(trials, by_role["attack"]),
            artifact_weight=sum(weights) / len(weights) if weights else None,
        )
        for client, rows in self._crossed[size].items():
            if len(rows) == len(trials):
                scores.crossed[client] = self._mean_scores(rows, len(trials))
        for role, rows in by_role.items():
            if {number for number, _, _ in rows} != set(range(len(trials))):
                continue  # a control must exist for every trial
            scores.headline[role] = self._mean_scores(rows, len(trials))
            if size in self.described and role in DESCRIBED_ROLES:
                first_of_trial = list({row[0]: row for row in reversed(rows)}.values())
                self._add_further_metrics(role, first_of_trial, scores)
        complete = {role: by_role[role] for role in scores.headline}
        scores.shared_variance_of_mean, scores.shared_variance = self.task.shared_variances(complete, scores.units)
        return scores

    def _add_further_metrics(self, role: str, rows: TrialAnswers, scores: TrialScores) -> None:
        """Adds the further metrics, of one prediction per trial."""
        predictions, truths = [prediction for _, prediction, _ in rows], [truth for _, _, truth in rows]
        for metric, values in self.task.details(predictions, truths).items():
            scores.details.setdefault(metric, {})[role] = _mean_by_trial(values, rows, len(rows))
        if aggregates := self.task.of_set(predictions, truths):
            scores.aggregates[role] = aggregates

    def _mean_scores(self, rows: TrialAnswers, count: int) -> list[float]:
        values = self.task.score([prediction for _, prediction, _ in rows], [truth for _, _, truth in rows])
        return _mean_by_trial(values, rows, count)


def _fingerprint(trials: Sequence[Trial], rows: TrialAnswers) -> str:
    """SHA-256 of the predictions, by the name of the trial's unit."""
    digest = sha256()
    for number, prediction, _ in sorted(rows, key=lambda row: trials[row[0]].unit):
        digest.update(trials[number].unit.encode() + bytes(str(tuple(prediction.shape)), "ascii"))
        digest.update(prediction.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _of_trial(rows: TrialAnswers, trial: int) -> TrialAnswers:
    return [row for row in rows if row[0] == trial]


def _predictions_without_artifact(
    trial: Trial, baselines: Baselines, sources: tuple[str, ...]
) -> list[tuple[str, Prediction, GroundTruth]]:
    """Predictions for this trial without any artifact: the adversary's, those from a public mean it knows, and given ones."""
    rows: list[tuple[str, Prediction, GroundTruth]] = []
    for key, predictions in baselines.items():
        role, _, value = key.partition(":")
        known_values = dict.fromkeys(KNOWN_DOMAIN_CONTROLS, sources[trial.truth.domain])
        if trial.size == 1:
            known_values["class_mean"] = str(int(trial.truth.labels[0]))
        if not value or known_values.get(role) == value:
            rows += [(role, prediction, trial.truth) for prediction in predictions]
    return rows + [(role, prediction, truth) for role, pairs in trial.given.items() for prediction, truth in pairs]


def _mean_by_trial(scores: Tensor, rows: TrialAnswers, count: int) -> list[float]:
    """The mean score of each trial (count,)."""
    trials = torch.tensor([trial for trial, _, _ in rows])
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, trials, scores.double())
    mean: list[float] = (total / trials.bincount(minlength=count)).tolist()
    return mean
