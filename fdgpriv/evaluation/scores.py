"""Runs an attack on its trials: the adversary predicts, the task scores the predictions, and only numbers are kept."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from pydantic import ConfigDict
from torch import Tensor

from fdgpriv.adversary import Observation, Prediction
from fdgpriv.attack import Attack
from fdgpriv.evaluation.trial import AdversaryTrials, Trial
from fdgpriv.evaluation.trust import blended, trust, weight_of, without_artifact
from fdgpriv.statistics.measured import Measured
from fdgpriv.targets.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Predictions

ScoresByName = dict[str, list[float]]
DESCRIBED = ("attack", "mean_image", "random_style", "other_client", "autoencoder")


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
        trust: The mean weight of artifacts against artifact-free predictions; None where the task has none.
    """

    units: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    headline: ScoresByName = field(default_factory=dict)
    details: dict[str, ScoresByName] = field(default_factory=dict)
    crossed: ScoresByName = field(default_factory=dict)
    realism: dict[str, dict[str, Measured]] = field(default_factory=dict)
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


def averaged(several: Sequence[Scores]) -> Scores:
    """The mean scores of several runs of one attack on the same trials; figures of sets are the first run's."""
    first = several[0]

    def mean(tables: Sequence[ScoresByName]) -> ScoresByName:
        return {name: np.mean([table[name] for table in tables], axis=0).tolist() for name in tables[0]}

    return replace(
        first,
        headline=mean([one.headline for one in several]),
        details={metric: mean([one.details[metric] for one in several]) for metric in first.details},
        crossed=mean([one.crossed for one in several]),
        trust=None if first.trust is None else float(np.mean([one.trust for one in several])),
    )


Answers = list[tuple[int, Prediction, GroundTruth]]  # trial, prediction, truth


def evaluate_trials(
    attack: Attack, adversaries: Sequence[AdversaryTrials], described: Sequence[int | None], rng: torch.Generator
) -> tuple[dict[int | None, Scores], dict[int | None, list[tuple[GroundTruth, dict[str, Prediction]]]]]:
    """Scores by size, and for each size the predictions of each target, for figures.

    Args:
        attack: Predicts the task's secret from each adversary's observations.
        adversaries: Adversaries and their trials.
        described: The sizes for which the further metrics, and every client's artifact read as every other's, are
            scored too.
        rng: Of the attack's own randomness.
    """
    answers, crossed = (defaultdict[int | None, dict[str, Answers]](lambda: defaultdict(list)) for _ in range(2))
    trials: dict[int | None, list[Trial]] = defaultdict(list)
    weights: dict[int | None, list[float]] = defaultdict(list)
    for adversary_trials in adversaries:
        observed = [
            (trial, answers, name, one)
            for trial in adversary_trials.trials
            for name, ones in trial.asked.items()
            for one in ones
        ]
        some = [trial for trial in adversary_trials.trials if trial.size in described]
        observed += [(trial, crossed, client, one) for trial in some for client, one in trial.crossed.items()]
        sizes = {trial.size for trial in adversary_trials.trials}
        weighed = adversary_trials.calibration if attack.task.weighed else ()
        calibration = [trial for trial in weighed if trial.size in sizes]
        place: dict[Observation, int] = {}  # an observation that serves several controls is evaluated once
        for _, _, _, one in observed:
            place.setdefault(one.observation, len(place))
        adversary = adversary_trials.adversary
        found = Predictions.of(attack.infer(adversary, [*place, *(c.one.observation for c in calibration)], rng))
        predictions = replace(found, values=list(found.values)[: len(place)])
        trusted = trust(attack.task, adversary, calibration, list(found.values)[len(place) :], adversary_trials.shifted)
        for trial in adversary_trials.trials:
            if (weight := weight_of(trusted, trial.size)) is not None:
                weights[trial.size].append(weight)
        baselines = attack.task.baselines(adversary, predictions, rng) | dict(predictions.baselines)
        number = {}
        for trial in adversary_trials.trials:
            number[id(trial)] = len(trials[trial.size])
            trials[trial.size].append(trial)
            for name, prediction, truth in _without_artifact(trial, baselines, adversary.sources):
                if trusted and name in predictions.baselines:  # the attack's own, from no artifact: weighed as it is
                    unaided = without_artifact(attack.task, adversary, prediction, truth.domain)
                    prediction = blended(attack.task, prediction, unaided, weight_of(trusted, trial.size))
                answers[trial.size][name].append((number[id(trial)], prediction, truth))
        for trial, table, name, one in observed:
            i, weight = place[one.observation], weight_of(trusted, 1 if name == "autoencoder" else trial.size)
            unaided = without_artifact(attack.task, adversary, predictions[i], trial.truth.domain) if trusted else None
            prediction = blended(attack.task, predictions[i], unaided, weight)
            table[trial.size][name].append((number[id(trial)], prediction, one.truth))
    scores = {
        size: _scored(attack, trials[size], by_name, crossed[size], size in described, weights[size])
        for size, by_name in sorted(answers.items(), key=_last)
    }
    predicted = {
        size: [
            (trial.truth, {name: rows[0][1] for name in by_name if (rows := _of(by_name[name], i))})
            for i, trial in enumerate(trials[size])
        ]
        for size, by_name in answers.items()
    }
    return scores, predicted


def _last(entry: tuple[int | None, object]) -> float:
    return float("inf") if entry[0] is None else float(entry[0])


def _of(rows: Answers, trial: int) -> Answers:
    return [row for row in rows if row[0] == trial]


def _without_artifact(
    trial: Trial, baselines: Baselines, sources: tuple[str, ...]
) -> list[tuple[str, Prediction, GroundTruth]]:
    """Predictions for this trial without any artifact: the adversary's, those from a public mean it knows, and given ones."""
    found: list[tuple[str, Prediction, GroundTruth]] = []
    for key, predictions in baselines.items():
        name, _, known_value = key.partition(":")
        known = {"domain_mean": sources[trial.truth.domain]}
        if trial.size == 1:
            known["class_mean"] = str(int(trial.truth.labels[0]))
        if not known_value or known.get(name) == known_value:
            found += [(name, prediction, trial.truth) for prediction in predictions]
    return found + [(name, prediction, truth) for name, pairs in trial.given.items() for prediction, truth in pairs]


def _scored(
    attack: Attack,
    trials: Sequence[Trial],
    by_name: dict[str, Answers],
    crossed: dict[str, Answers],
    described: bool,
    weights: Sequence[float],
) -> Scores:
    scores = Scores(
        units=[trial.unit for trial in trials],
        clients=[trial.client for trial in trials],
        trust=sum(weights) / len(weights) if weights else None,
    )
    for name, rows in crossed.items():
        if len(rows) == len(trials):
            found = attack.task.score([prediction for _, prediction, _ in rows], [truth for _, _, truth in rows])
            scores.crossed[name] = _averaged(found, rows, len(trials))
    for name, rows in by_name.items():
        if {trial for trial, _, _ in rows} != set(range(len(trials))):
            continue  # a control must exist for every target
        predictions, truths = [prediction for _, prediction, _ in rows], [truth for _, _, truth in rows]
        scores.headline[name] = _averaged(attack.task.score(predictions, truths), rows, len(trials))
        if described and name in DESCRIBED:
            _add_details(attack, name, list({row[0]: row for row in reversed(rows)}.values()), scores)
    return scores


def _add_details(attack: Attack, name: str, rows: Answers, scores: Scores) -> None:
    """Adds the further metrics, of one prediction per trial."""
    predictions, truths = [prediction for _, prediction, _ in rows], [truth for _, _, truth in rows]
    for metric, values in attack.task.details(predictions, truths).items():
        scores.details.setdefault(metric, {})[name] = _averaged(values, rows, len(rows))
    if realism := attack.task.of_set(predictions, truths):
        scores.realism[name] = realism


def _averaged(scores: Tensor, rows: Answers, count: int) -> list[float]:
    """The mean score of each trial (count,)."""
    where = torch.tensor([trial for trial, _, _ in rows])
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, where, scores.double())
    mean: list[float] = (total / where.bincount(minlength=count)).tolist()
    return mean
