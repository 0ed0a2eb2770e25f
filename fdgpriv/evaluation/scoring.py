"""Runs an attack on its trials: infers once per adversary, blends with priors, and scores each task that it answers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor

from fdgpriv.adversary import Prediction
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.attack import Attack
from fdgpriv.evaluation.answers import Inferred, TaskAnswers
from fdgpriv.evaluation.trial import AdversaryTrials, Trial
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Task, TrialAnswers
from fdgpriv.verdicts.trial_scores import TrialScores, averaged_scores

DETAILED_ROLES = ("attack", "mean_image", "half_uniform", "random_style", "other_client", "autoencoder")

ScoresByTask = dict[str, TrialScores]  # by the name of the task
# the truth of one trial, and by role one prediction with the truth that it is scored against
PredictedTrial = tuple[GroundTruth, dict[str, tuple[Prediction, GroundTruth]]]
PredictedBySize = dict[int | None, list[PredictedTrial]]


def evaluate_trials(
    attack: Attack, adversaries: Sequence[AdversaryTrials], detailed_sizes: Sequence[int | None], rng: torch.Generator
) -> tuple[dict[int | None, TrialScores], PredictedBySize]:
    """The scores of the attack's own task by size, and its predictions; arguments as of `evaluate_tasks`."""
    by_size, predicted = evaluate_tasks(attack, adversaries, detailed_sizes, rng, [attack.task])
    return {size: scores[attack.task.name()] for size, scores in by_size.items()}, predicted


def evaluate_tasks(
    attack: Attack,
    adversaries: Sequence[AdversaryTrials],
    detailed_sizes: Sequence[int | None],
    rng: torch.Generator,
    tasks: Sequence[Task] = (),
) -> tuple[dict[int | None, ScoresByTask], PredictedBySize]:
    """Scores by size and task from the same predictions, and the first task's predictions by size and trial, for figures.

    Args:
        attack: Predicts the secret of its task from each adversary's observations.
        adversaries: Adversaries and their trials.
        detailed_sizes: Sizes at which further metrics and crossed observations are scored too.
        rng: Random numbers of the attack.
        tasks: The tasks to score; by default all of the attack's.
    """
    scorings = [_TaskScoring(task, detailed_sizes) for task in tasks or attack.tasks]
    for adversary_trials in adversaries:
        inferred = Inferred.of(attack, adversary_trials, detailed_sizes, rng)
        state = rng.get_state()
        for number, scoring in enumerate(scorings):  # all draw the same noise; only the first advances `rng`
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


@dataclass(eq=False)
class _TaskScoring:
    """The answers to one task by size and role (``attack``, controls, bounds), each blended with the adversary's prior.

    Attributes:
        task: The task.
        detailed_sizes: Sizes at which further metrics are scored too.
    """

    task: Task
    detailed_sizes: Sequence[int | None]

    def __post_init__(self) -> None:
        self._trials: dict[int | None, list[Trial]] = defaultdict(list)
        self._weights: dict[int | None, list[float]] = defaultdict(list)
        self._misfit: str | None = None
        # sizes at which any prediction differs from all that is known without the artifact
        self._informative: set[int | None] = set()
        self._answers, self._crossed = (
            defaultdict[int | None, dict[str, TrialAnswers]](lambda: defaultdict(list)) for _ in range(2)
        )

    def add(self, inferred: Inferred, rng: torch.Generator) -> None:
        """Adds the answers of one adversary."""
        answers = TaskAnswers.of(self.task, inferred, rng)
        for trial in inferred.adversary_trials.trials:
            if not self.task.askable(trial.truth):
                continue
            size, number = trial.size, len(self._trials[trial.size])
            self._trials[size].append(trial)
            if (weight := answers.weight(size)) is not None:
                self._weights[size].append(weight)
                self._misfit = self._misfit or answers.misfit
            controls = answers.without_artifact(trial)
            if size not in self._informative and answers.is_informative(trial, controls):
                self._informative.add(size)
            for role, prediction, truth in [*controls, *answers.with_artifacts(trial)]:
                if self.task.askable(truth):
                    self._answers[size][role].append((number, prediction, truth))
            for client, scored in trial.crossed.items() if size in self.detailed_sizes else ():
                self._crossed[size][client].append((number, answers.of_artifact(scored, trial, size), scored.truth))

    def scores(self) -> dict[int | None, TrialScores]:
        """By size, the scores of all answers."""
        return {size: self._scores_at(size) for size in self._trials}

    def predicted(self) -> PredictedBySize:
        """By size, the truth and one prediction of each role for each trial."""
        predicted = PredictedBySize()
        for size, by_role in self._answers.items():
            first_answers = {role: _first_of_each_trial(rows) for role, rows in by_role.items()}
            predicted[size] = [
                (trial.truth, {role: rows[number][1:] for role, rows in first_answers.items() if number in rows})
                for number, trial in enumerate(self._trials[size])
            ]
        return predicted

    def _is_stated(self, trial: Trial) -> bool:
        """Whether the attacked artifact is the secret."""
        sent = trial.by_role["attack"][0].observation.sent
        return isinstance(sent, Artifact) and self.task.secret in sent.equals

    def _scores_at(self, size: int | None) -> TrialScores:
        """The scores of all answers at one size."""
        trials, weights, by_role = self._trials[size], self._weights[size], self._answers[size]
        scores = TrialScores(
            units=[trial.unit for trial in trials],
            clients=[trial.client for trial in trials],
            artifact_used=size in self._informative,
            fingerprint=_fingerprint(trials, by_role["attack"]),
            artifact_weight=sum(weights) / len(weights) if weights else None,
            misfit=self._misfit if size is None else None,
            secret_stated=self._is_stated(trials[0]),
        )
        for client, rows in self._crossed[size].items():
            if len(rows) == len(trials):
                scores.crossed[client] = self._mean_scores(rows, len(trials))
        for role, rows in by_role.items():
            if {number for number, _, _ in rows} != set(range(len(trials))):
                continue  # a control must exist for every trial
            scores.headline[role] = self._mean_scores(rows, len(trials))
            if size in self.detailed_sizes and role in DETAILED_ROLES:
                self._add_further_metrics(role, list(_first_of_each_trial(rows).values()), scores)
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
        """The task's mean score of each trial (count,)."""
        values = self.task.score([prediction for _, prediction, _ in rows], [truth for _, _, truth in rows])
        return _mean_by_trial(values, rows, count)


def _fingerprint(trials: Sequence[Trial], rows: TrialAnswers) -> str:
    """SHA-256 of the predictions, by the name of the trial's unit."""
    digest = sha256()
    for number, prediction, _ in sorted(rows, key=lambda row: trials[row[0]].unit):
        digest.update(trials[number].unit.encode() + bytes(str(tuple(prediction.shape)), "ascii"))
        digest.update(prediction.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _first_of_each_trial(rows: TrialAnswers) -> dict[int, tuple[int, Prediction, GroundTruth]]:
    """By number of the trial, its first answer."""
    return {row[0]: row for row in reversed(rows)}


def _mean_by_trial(scores: Tensor, rows: TrialAnswers, count: int) -> list[float]:
    """The mean score of each trial (count,)."""
    trials = torch.tensor([trial for trial, _, _ in rows])
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, trials, scores.double())
    mean: list[float] = (total / trials.bincount(minlength=count)).tolist()
    return mean
