"""Chooses the weight with which predictions from artifacts are blended with the artifact-free prediction.

The weight depends on the artifact's number of images. It is chosen on simulated artifacts, whose ground truth the adversary
knows.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.evaluation.trial import CalibrationTrial
from fdgpriv.tasks.task import Task
from fdgpriv.threat import Capability

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_DECILE = 1.2816  # standard deviations between the mean and the lowest decile of a normal distribution
_NEGLIGIBLE = 0.1  # share of the relevant effect that a larger weight may lose
_ROUNDING = 1e-9

ArtifactWeights = Mapping[int | None, float]


def artifact_weights(
    task: Task,
    adversary: Adversary,
    trials: Sequence[CalibrationTrial],
    predictions: Sequence[Prediction],
    shifted: bool,
) -> ArtifactWeights:
    """By number of images of the artifact, the weight of the best blend with the artifact-free prediction.

    If `shifted`, each simulated client has images in another look. The look of the evaluated clients is unknown, and may be
    the worst for the attack: the weight is the best for the lowest decile of simulated clients. Errors that differ by orders
    of magnitude between looks are then compared by their ratio. If the number of images is the secret, one weight serves all.

    Returns: Empty if the task has no artifact-free prediction or nothing was simulated.
    """
    by_size: dict[int | None, list[int]] = {}
    for number, trial in enumerate(trials):
        if task.askable(trial.scored.truth):
            by_size.setdefault(None if task.hides_size else trial.size, []).append(number)
    weights: dict[int | None, float] = {}
    for size, numbers in by_size.items():
        scores = _scores_by_weight(task, adversary, [trials[i] for i in numbers], [predictions[i] for i in numbers])
        if scores is None:
            return {}
        clients = [trials[i].client for i in numbers]
        if shifted:
            values = scores.clamp_min(_ROUNDING).log() if task.compares_ratios else scores
            weights[size] = WEIGHTS[_best_in_lowest_decile(_gains_by_client(task, values, clients))]
        else:
            tolerance = _NEGLIGIBLE * task.relevant * (float(scores[0].mean()) if task.relative_to else 1.0)
            weights[size] = WEIGHTS[_largest_as_good(_gains_by_client(task, scores, clients), tolerance)]
    return weights


def _scores_by_weight(
    task: Task, adversary: Adversary, trials: Sequence[CalibrationTrial], predictions: Sequence[Prediction]
) -> Tensor | None:
    """(W, n): the score of each trial's prediction, blended at each of `WEIGHTS`; None if there is no prior to blend with."""
    truths = [trial.scored.truth for trial in trials]
    pairs = [
        (prediction, prior_of(task, adversary, prediction, truth.domain))
        for prediction, truth in zip(predictions, truths, strict=True)
    ]
    if any(prior is None for _, prior in pairs):
        return None
    blends = [[blended(task, prediction, prior, weight) for prediction, prior in pairs] for weight in WEIGHTS]
    return torch.stack([task.score(predictions_at, truths).double() for predictions_at in blends])


def _gains_by_client(task: Task, scores: Tensor, clients: Sequence[str]) -> list[Tensor]:
    """By client, (W, m): what its scores at each weight gain over weight 0, from scores (W, n) of these n clients."""
    gains = (scores - scores[:1]) * (1 if task.higher_leaks else -1)
    return [gains[:, torch.tensor([other == client for other in clients])] for client in dict.fromkeys(clients)]


def _best_in_lowest_decile(gains: Sequence[Tensor]) -> int:
    """Index of the weight whose mean gains have the best lowest decile over clients; of equal ones the largest.

    A client's mean gain also varies by chance, which the spread of its gains (W, m) shows: the decile is that of a normal
    distribution of the remaining variance.
    """
    means = _means(gains)
    chance = torch.stack([g.var(1) / g.shape[1] if g.shape[1] > 1 else 0 * g[:, 0] for g in gains], dim=1)
    between = (means.var(1) - chance.mean(1)).clamp_min(0) if len(gains) > 1 else chance[:, 0]
    low = means.mean(1) - _DECILE * between.sqrt()
    return int((low >= low.max() - _ROUNDING).nonzero().max())


def _largest_as_good(gains: Sequence[Tensor], tolerance: float) -> int:
    """Index of the largest weight that loses at most `tolerance`, and at most one standard error, of the best mean gain.

    0 if the best weight gains no more than half of its standard error.
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
    return torch.stack([client_gains.mean(1) for client_gains in gains], dim=1)


def prior_of(task: Task, adversary: Adversary, prediction: Prediction, domain: int) -> Prediction | None:
    """The adversary's artifact-free prediction, in the form of `prediction`, for a client of this domain."""
    knows_domain = Capability.KNOWS_DOMAIN in adversary.threat.capabilities
    return task.prior_prediction(adversary, prediction, adversary.sources[domain] if knows_domain else None)


def blended(task: Task, prediction: Prediction, prior: Prediction | None, weight: float | None) -> Prediction:
    """The blend of prediction and prior at this weight; the prediction itself if there is no weight or no prior."""
    if weight is None or weight == 1 or prior is None:
        return prediction
    return task.blend(prediction, prior, weight)


def weight_at(weights: ArtifactWeights, size: int | None) -> float | None:
    """The weight for artifacts of `size` images; None if no size was calibrated.

    It is the weight of the largest calibrated size up to `size`, or else of the smallest calibrated one. A whole client
    (None) counts as larger than any number.
    """
    if not weights:
        return None
    by_count = {float("inf") if size is None else float(size): weight for size, weight in weights.items()}
    count = float("inf") if size is None else float(size)
    not_larger = [calibrated for calibrated in by_count if calibrated <= count]
    return by_count[max(not_larger)] if not_larger else by_count[min(by_count)]
