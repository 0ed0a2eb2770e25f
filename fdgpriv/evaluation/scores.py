"""Runs an attack on its trials: lays out what it reads, infers once, calibrates and scores each task that this answers.

Only numbers are kept.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np
import torch
from pydantic import ConfigDict
from torch import Tensor

from fdgpriv.adversary import Observation, Prediction
from fdgpriv.attack import Attack
from fdgpriv.evaluation.checked_predictions import checked_predictions
from fdgpriv.evaluation.trial import AdversaryTrials, CalibrationTrial, Trial
from fdgpriv.evaluation.trust import blended, trust, weight_of, without_artifact
from fdgpriv.statistics.measured import Measured
from fdgpriv.targets.ground_truth import GroundTruth
from fdgpriv.tasks.task import Answers, Baselines, Predictions, Task

ScoresByName = dict[str, list[float]]
ONE_ROUND = "one_round"  # what scores on several rounds are compared with
DESCRIBED = ("attack", "mean_image", "half_uniform", "random_style", "other_client", "autoencoder")
OF_DOMAIN = ("domain_mean", "domain_shares")  # controls of who knows the target's domain


@dataclass
class Scores:
    """Scores of one attack under one threat model at one number of images of the artifact.

    Attributes:
        units: The independent unit of each target.
        clients: The client of each target.
        headline: By name (``attack``, controls, bounds), the headline metric of each target.
        details: The same by further metric.
        crossed: Of whole clients, by client, the headline metric of each target where the attack reads that client's
            artifact instead; of a global artifact, by number, with candidates that are not among its images.
        realism: By name, figures of the predictions as a set.
        shared_variance: By control, the variance of the attack's mean lead over it from what units share, such as
            membership candidates; nothing where they share nothing.
        shared_variance_of_mean: The same of the mean scores, by name.
        artifact_used: Whether any prediction differs from what the adversary predicts without the artifact.
        fingerprint: SHA-256 of the attack's predictions, of each of its runs; empty where they are not known.
        trust: The mean weight of artifacts against artifact-free predictions; None where the task has none.
    """

    units: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    headline: ScoresByName = field(default_factory=dict)
    details: dict[str, ScoresByName] = field(default_factory=dict)
    crossed: ScoresByName = field(default_factory=dict)
    realism: dict[str, dict[str, Measured]] = field(default_factory=dict)
    shared_variance: dict[str, float] = field(default_factory=dict)
    shared_variance_of_mean: dict[str, float] = field(default_factory=dict)
    artifact_used: bool = True
    fingerprint: str = ""
    trust: float | None = None

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    @property
    def recovered(self) -> list[float]:
        """Of an attack that recovers artifacts exactly or does not: 1 for each target it recovered, else 0."""
        return self.details.get("recovered", {}).get("attack", [])

    def check(self) -> None:
        """Checks that scores and targets correspond.

        Raises:
            ValueError: A target has no score, or a score no target.
        """
        count = len(self.units)
        if count == 0 or "attack" not in self.headline:
            raise ValueError(f"want scores of an attack on at least 1 target, got {count} targets")
        for metric, scores in [("headline", self.headline), ("crossed", self.crossed), *self.details.items()]:
            for name, values in scores.items():
                if len(values) != count:
                    raise ValueError(f"want {count} scores of {name} in {metric}, got {len(values)}")
        if len(self.clients) != count:
            raise ValueError(f"want the client of each of {count} targets, got {len(self.clients)}")


ByTask = dict[str, Scores]  # by the name of the task


def averaged(several: Sequence[ByTask]) -> ByTask:
    """By task, the mean scores of several runs of one attack on the same trials; figures of sets are the first run's."""
    return {task: _averaged_scores([by_task[task] for by_task in several]) for task in several[0]}


def _averaged_scores(several: Sequence[Scores]) -> Scores:
    """Variances are averaged too: the mean of several runs has at most that."""
    first = several[0]

    def mean(tables: Sequence[ScoresByName]) -> ScoresByName:
        return {name: np.mean([table[name] for table in tables], axis=0).tolist() for name in tables[0]}

    def mean_variances(tables: Sequence[dict[str, float]]) -> dict[str, float]:
        return {name: float(np.mean([table[name] for table in tables])) for name in tables[0]}

    return replace(
        first,
        headline=mean([one.headline for one in several]),
        details={metric: mean([one.details[metric] for one in several]) for metric in first.details},
        crossed=mean([one.crossed for one in several]),
        shared_variance=mean_variances([one.shared_variance for one in several]),
        shared_variance_of_mean=mean_variances([one.shared_variance_of_mean for one in several]),
        artifact_used=any(one.artifact_used for one in several),
        fingerprint=" ".join(one.fingerprint for one in several).strip(),
        trust=None if first.trust is None else float(np.mean([one.trust for one in several])),
    )


# Of one target: the truth, and by name one prediction with the truth that it is scored against.
PredictedTarget = tuple[GroundTruth, dict[str, tuple[Prediction, GroundTruth]]]
Predicted = dict[int | None, list[PredictedTarget]]


def evaluate_trials(
    attack: Attack, adversaries: Sequence[AdversaryTrials], described: Sequence[int | None], rng: torch.Generator
) -> tuple[dict[int | None, Scores], Predicted]:
    """The scores of the attack's own task by size, and its predictions; arguments as of `evaluate_tasks`."""
    by_size, predicted = evaluate_tasks(attack, adversaries, described, rng, [attack.task])
    return {size: scores[attack.task.name()] for size, scores in by_size.items()}, predicted


def evaluate_tasks(
    attack: Attack,
    adversaries: Sequence[AdversaryTrials],
    described: Sequence[int | None],
    rng: torch.Generator,
    tasks: Sequence[Task] = (),
) -> tuple[dict[int | None, ByTask], Predicted]:
    """Scores by size and task, all from the same predictions; and for each size the first task's, by target, for figures.

    Args:
        attack: Predicts the secret of its task from each adversary's observations.
        adversaries: Adversaries and their trials.
        described: The sizes for which the further metrics, and every client's artifact read as every other's, are
            scored too.
        rng: Of the attack's own randomness.
        tasks: That the predictions answer; by default all of the attack's.
    """
    tables = [_TaskAnswers(task, described) for task in tasks or attack.tasks]
    for adversary_trials in adversaries:
        inferred = _Inferred.of(attack, adversary_trials, described, rng)
        begin = rng.get_state()
        for number, table in enumerate(tables):  # each draws the same noise; only the first moves `rng` on
            table.add(inferred, torch.Generator().set_state(begin) if number else rng)
    by_size: dict[int | None, ByTask] = {}
    for table in tables:
        for size, scores in table.scores().items():
            by_size.setdefault(size, {})[table.task.name()] = scores
    return dict(sorted(by_size.items(), key=_last)), tables[0].predicted()


def _last(entry: tuple[int | None, object]) -> float:
    return float("inf") if entry[0] is None else float(entry[0])


@dataclass(frozen=True, eq=False)
class _Inferred:
    """What an attack infers for one adversary.

    Attributes:
        asked: The adversary and its trials.
        observations: Of all trials; one that serves several controls is read once.
        predictions: Of these, with what the attack predicts without any artifact.
        calibration: What the adversary calibrates with.
        calibrating: The predictions for these.
    """

    asked: AdversaryTrials
    observations: Sequence[Observation]
    predictions: Predictions
    calibration: Sequence[CalibrationTrial]
    calibrating: Sequence[Prediction]

    @classmethod
    def of(
        cls,
        attack: Attack,
        asked: AdversaryTrials,
        described: Sequence[int | None],
        rng: torch.Generator,
    ) -> "_Inferred":
        """Runs the attack once, on the observations of all trials and on those of the calibration."""
        trials, sizes = asked.trials, {trial.size for trial in asked.trials}
        asked_of = [one for trial in trials for ones in trial.asked.values() for one in ones]
        asked_of += [one for trial in trials if trial.size in described for one in trial.crossed.values()]
        truths: dict[Observation, GroundTruth] = {}
        for one in asked_of:
            truths.setdefault(one.observation, one.truth)
        observations = list(truths)
        weighed = any(task.weighed for task in attack.tasks)
        calibration = [trial for trial in asked.calibration if trial.size in sizes] if weighed else []
        read = [*observations, *(trial.one.observation for trial in calibration)]
        every = [*truths.values(), *(trial.one.truth for trial in calibration)]
        answer = attack.infer(asked.adversary, read, rng)
        predictions = checked_predictions(attack.name(), answer, attack.task, asked.adversary, every)
        values = list(predictions.values)
        told, calibrating = values[: len(observations)], values[len(observations) :]
        return cls(asked, observations, replace(predictions, values=told), calibration, calibrating)


@dataclass(eq=False)
class _TaskAnswers:
    """The answers to one task by size and name (``attack``, controls, bounds), each weighed as its adversary trusts it.

    Attributes:
        task: The task.
        described: Sizes that are scored by the further metrics, too.
    """

    task: Task
    described: Sequence[int | None]

    def __post_init__(self) -> None:
        self._trials: dict[int | None, list[Trial]] = defaultdict(list)
        self._weights: dict[int | None, list[float]] = defaultdict(list)
        self._used: set[int | None] = (
            set()
        )  # sizes at which any prediction says more than what is known without the artifact
        self._answers, self._crossed = (
            defaultdict[int | None, dict[str, Answers]](lambda: defaultdict(list)) for _ in range(2)
        )

    def add(self, inferred: _Inferred, rng: torch.Generator) -> None:
        """Adds the answers of one adversary: calibrates its trust, and weighs its predictions and controls by it."""
        task, adversary, told = self.task, inferred.asked.adversary, inferred.predictions
        calibrating = [task.answer(prediction) for prediction in inferred.calibrating]
        weighed = inferred.calibration if task.weighed else ()
        trusted = trust(task, adversary, weighed, calibrating, inferred.asked.shifted)
        predictions = replace(told, values=[task.answer(prediction) for prediction in told.values])
        by_observation = dict(zip(inferred.observations, predictions.values, strict=True))
        of_attack = {name: [task.answer(one) for one in several] for name, several in told.baselines.items()}
        baselines = task.baselines(adversary, predictions, rng) | of_attack

        def blend(prediction: Prediction, trial: Trial, size: int | None) -> Prediction:
            if not trusted:
                return prediction
            unaided = without_artifact(task, adversary, prediction, trial.truth.domain)
            return blended(task, prediction, unaided, weight_of(trusted, size))

        for trial in inferred.asked.trials:
            if not task.askable(trial.truth):
                continue
            size, number = trial.size, len(self._trials[trial.size])
            self._trials[size].append(trial)
            if (weight := weight_of(trusted, size)) is not None:
                self._weights[size].append(weight)
            rows = [
                (name, blend(prediction, trial, size) if name in of_attack else prediction, truth)
                for name, prediction, truth in _without_artifact(trial, baselines, adversary.sources)
            ]
            if size not in self._used:
                prediction = blend(by_observation[trial.asked["attack"][0].observation], trial, size)
                prior = without_artifact(task, adversary, prediction, trial.truth.domain)
                known = [*([] if prior is None else [prior]), *(p for name, p, _ in rows if name not in trial.given)]
                if not task.uninformative(prediction, known):
                    self._used.add(size)
            rows += [
                (name, blend(by_observation[one.observation], trial, 1 if name == "autoencoder" else size), one.truth)
                for name, ones in trial.asked.items()
                for one in ones
            ]
            for name, prediction, truth in rows:
                if task.askable(truth):
                    self._answers[size][name].append((number, prediction, truth))
            for client, one in trial.crossed.items() if size in self.described else ():
                answer = blend(by_observation[one.observation], trial, size)
                self._crossed[size][client].append((number, answer, one.truth))

    def scores(self) -> dict[int | None, Scores]:
        """By size, the scores of all answers."""
        return {size: self._of_size(size) for size in self._trials}

    def predicted(self) -> Predicted:
        """By size, what is predicted of each target."""
        return {
            size: [
                (trial.truth, {name: rows[0][1:] for name in by_name if (rows := _of(by_name[name], number))})
                for number, trial in enumerate(self._trials[size])
            ]
            for size, by_name in self._answers.items()
        }

    def _of_size(self, size: int | None) -> Scores:
        trials, weights, described = self._trials[size], self._weights[size], size in self.described
        scores = Scores(
            units=[trial.unit for trial in trials],
            clients=[trial.client for trial in trials],
            artifact_used=size in self._used,
            fingerprint=_fingerprint(trials, self._answers[size]["attack"]),
            trust=sum(weights) / len(weights) if weights else None,
        )
        for name, rows in self._crossed[size].items():
            if len(rows) == len(trials):
                scores.crossed[name] = self._averaged(rows, len(trials))
        for name, rows in self._answers[size].items():
            if {number for number, _, _ in rows} != set(range(len(trials))):
                continue  # a control must exist for every target
            scores.headline[name] = self._averaged(rows, len(trials))
            if described and name in DESCRIBED:
                _add_details(self.task, name, list({row[0]: row for row in reversed(rows)}.values()), scores)
        complete = {name: self._answers[size][name] for name in scores.headline}
        scores.shared_variance_of_mean, scores.shared_variance = self.task.shared_variances(complete, scores.units)
        return scores

    def _averaged(self, rows: Answers, count: int) -> list[float]:
        return _averaged(self.task.score([p for _, p, _ in rows], [truth for _, _, truth in rows]), rows, count)


def _fingerprint(trials: Sequence[Trial], rows: Answers) -> str:
    """SHA-256 of the predictions, by the name of the trial's unit."""
    digest = sha256()
    for number, prediction, _ in sorted(rows, key=lambda row: trials[row[0]].unit):
        digest.update(trials[number].unit.encode() + bytes(str(tuple(prediction.shape)), "ascii"))
        digest.update(prediction.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _of(rows: Answers, trial: int) -> Answers:
    return [row for row in rows if row[0] == trial]


def _without_artifact(
    trial: Trial, baselines: Baselines, sources: tuple[str, ...]
) -> list[tuple[str, Prediction, GroundTruth]]:
    """Predictions for this trial without any artifact: the adversary's, those from a public mean it knows, and given ones."""
    found: list[tuple[str, Prediction, GroundTruth]] = []
    for key, predictions in baselines.items():
        name, _, known_value = key.partition(":")
        known = dict.fromkeys(OF_DOMAIN, sources[trial.truth.domain])
        if trial.size == 1:
            known["class_mean"] = str(int(trial.truth.labels[0]))
        if not known_value or known.get(name) == known_value:
            found += [(name, prediction, trial.truth) for prediction in predictions]
    return found + [(name, prediction, truth) for name, pairs in trial.given.items() for prediction, truth in pairs]


def _add_details(task: Task, name: str, rows: Answers, scores: Scores) -> None:
    """Adds the further metrics, of one prediction per trial."""
    predictions, truths = [prediction for _, prediction, _ in rows], [truth for _, _, truth in rows]
    for metric, values in task.details(predictions, truths).items():
        scores.details.setdefault(metric, {})[name] = _averaged(values, rows, len(rows))
    if realism := task.of_set(predictions, truths):
        scores.realism[name] = realism


def _averaged(scores: Tensor, rows: Answers, count: int) -> list[float]:
    """The mean score of each trial (count,)."""
    where = torch.tensor([trial for trial, _, _ in rows])
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, where, scores.double())
    mean: list[float] = (total / where.bincount(minlength=count)).tolist()
    return mean
