"""The weight of artifacts between what they tell and what an adversary predicts without them.

The weight is chosen by number of images of the artifact, on simulated artifacts whose ground truth the adversary knows.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.evaluation.trial import CalibrationTrial
from fdgpriv.tasks.task import Task
from fdgpriv.threat import Capability

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_DECILE = 1.2816  # standard deviations below the mean
_NEGLIGIBLE = 0.1  # relevant effects
_ROUNDING = 1e-9

ArtifactWeights = Mapping[int | None, float]


def artifact_weights(
    task: Task,
    adversary: Adversary,
    trials: Sequence[CalibrationTrial],
    predictions: Sequence[Prediction],
    shifted: bool,
) -> ArtifactWeights:
    """By number of images of the artifact, the weight whose blend with the artifact-free prediction gains most.

    Where the simulated clients' looks differ, most in the lowest decile of these clients: the look of the evaluated
    clients is unknown, and may suit the attack least. Errors that differ by orders of magnitude between looks are compared
    by their ratio there. Where the number of images is the secret there is one weight for all.

    Returns: Empty where the task is never blended or nothing was simulated.
    """
    by_size: dict[int | None, list[int]] = {}
    for number, trial in enumerate(trials):
        if task.askable(trial.scored.truth):
            by_size.setdefault(None if task.hides_size else trial.size, []).append(number)
    weights: dict[int | None, float] = {}
    for size, numbers in by_size.items():
        truths = [trials[i].scored.truth for i in numbers]
        priors = [prior_of(task, adversary, predictions[i], trials[i].scored.truth.domain) for i in numbers]
        if any(prior is None for prior in priors):
            return {}
        pairs = [(predictions[i], prior) for i, prior in zip(numbers, priors, strict=True)]
        blends = [[blended(task, prediction, prior, weight) for prediction, prior in pairs] for weight in WEIGHTS]
        scores = torch.stack([task.score(predictions_at, truths).double() for predictions_at in blends])
        if shifted and task.compares_ratios:
            scores = scores.clamp_min(_ROUNDING).log()
        gains = (scores - scores[:1]) * (1 if task.higher_leaks else -1)
        clients = [trials[i].client for i in numbers]
        by_client = [gains[:, torch.tensor([c == client for c in clients])] for client in dict.fromkeys(clients)]
        tolerance = _NEGLIGIBLE * task.relevant * (float(scores[0].mean()) if task.relative_to else 1.0)
        weights[size] = WEIGHTS[_robust(by_client) if shifted else _largest_as_good(by_client, tolerance)]
    return weights


def _robust(gains: Sequence[Tensor]) -> int:
    """The weight of the best lowest decile of gains over looks; of equal ones the largest.

    `gains` are (W, n) of each look. A look's mean gain varies by chance too, which its own spread shows: the decile is that
    of a normal distribution of the remaining variance.
    """
    means = _means(gains)
    chance = torch.stack([g.var(1) / g.shape[1] if g.shape[1] > 1 else 0 * g[:, 0] for g in gains], dim=1)
    between = (means.var(1) - chance.mean(1)).clamp_min(0) if len(gains) > 1 else chance[:, 0]
    low = means.mean(1) - _DECILE * between.sqrt()
    return int((low >= low.max() - _ROUNDING).nonzero().max())


def _largest_as_good(gains: Sequence[Tensor], tolerance: float) -> int:
    """The largest weight whose mean gain is as good as the best: what it loses may be chance, and is at most `tolerance`.

    Zero where the best gains no more than half of its standard error: that may be chance, too.
    """
    means = _means(gains)
    best = int(means.mean(1).argmax())
    if means[best].mean() <= _error(means[best]) / 2 + _ROUNDING:
        return 0
    lost = means[best] - means
    return int((lost.mean(1) <= _error(lost).clamp_max(tolerance) + _ROUNDING).nonzero().max())


def _error(rows: Tensor) -> Tensor:
    """The standard error (...) of the mean of rows (..., C); 0 for a single one."""
    count = rows.shape[-1]
    return rows.std(-1) / count**0.5 if count > 1 else torch.zeros(rows.shape[:-1])


def _means(gains: Sequence[Tensor]) -> Tensor:
    """(W, C): the mean of each client's gains (W, n)."""
    return torch.stack([of_client.mean(1) for of_client in gains], dim=1)


def prior_of(task: Task, adversary: Adversary, like: Prediction, domain: int) -> Prediction | None:
    """What this adversary predicts without an artifact, of a client of this domain, which it may know."""
    knows = Capability.KNOWS_DOMAIN in adversary.threat.capabilities
    return task.prior_prediction(adversary, like, adversary.sources[domain] if knows else None)


def blended(task: Task, prediction: Prediction, prior: Prediction | None, weight: float | None) -> Prediction:
    """The prediction at this weight; as it is where there is no weight."""
    if weight is None or weight == 1 or prior is None:
        return prediction
    return task.blend(prediction, prior, weight)


def weight_at(weights: ArtifactWeights, size: int | None) -> float | None:
    """The weight for artifacts of this many images; None where no size was calibrated.

    That of the largest calibrated size that is not larger, else of the smallest. The whole client counts as more than any
    number.
    """
    if not weights:
        return None
    by_count = {float("inf") if size is None else float(size): weight for size, weight in weights.items()}
    count = float("inf") if size is None else float(size)
    not_larger = [calibrated for calibrated in by_count if calibrated <= count]
    return by_count[max(not_larger)] if not_larger else by_count[min(by_count)]
