"""Linkage: re-identifies the client of an artifact among all clients' artifacts of an earlier round (hypothesis H-S3)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import BatchNormStatistics, ImportanceWeights, ModelState, ModelUpdate
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.targets.simulator import Simulator
from fdgpriv.targets.target import Target
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.task import Predictions

_FAR = 3.0  # largest standardised value
_RIDGE = 0.1  # times the mean variance of an axis, added to every variance


@dataclass(frozen=True)
class Linkage(Attack):
    """Ranks the earlier artifacts by their similarity to the observed one.

    Between rounds the model changes, and with it every client's artifact, mostly in the same way. So the artifacts of
    each round are standardised about their median, and whitened along the principal axes of the earlier ones, so that
    axes shared by all clients of a domain weigh no more than others. Similarity is the cosine of the result. The
    positive control is artifacts of the same clients simulated again, without defense.
    """

    reads = (StyleStatistics, ModelState, ModelUpdate, ImportanceWeights, BatchNormStatistics)
    task = LinkedClient()
    threats = ("server",)
    group_sizes = (None,)

    def inapplicable(self, target: Target[Simulator]) -> str | None:
        if len(target.earlier) < 2:
            return f"no {target.kind.replace('_', ' ')} of the same clients crossed in two rounds that are kept"
        return None

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        # which round's model is irrelevant: it is the same for all, so subtracting the median removes it
        received_model = observations[0].received_model
        before = torch.stack([adversary.vector(artifact, received_model) for artifact in adversary.earlier])
        predictions = likeness(adversary.vectors(observations), before)
        ordinary = -_standard(before).square().sum(1)
        return Predictions(list(predictions), {"mean_image": [ordinary]})


def likeness(now: Tensor, before: Tensor) -> Tensor:
    """Cosines (M, N) of the artifacts (M, D) of one round with those (N, D) of another, standardised and whitened."""
    ours, theirs = _standard(now), _standard(before)
    axes = torch.linalg.svd(theirs - theirs.mean(0), full_matrices=False)
    variance = axes.S.square() / len(theirs)
    white = axes.Vh.T / (variance + _RIDGE * variance.mean()).sqrt()
    ours, theirs = (torch.nn.functional.normalize(rows @ white, dim=1) for rows in (ours, theirs))
    return ours @ theirs.T


def _standard(rows: Tensor) -> Tensor:
    """Rows (M, D) about their median, in units of the median absolute deviation, clipped to _FAR to limit outliers."""
    center = rows.median(0).values
    spread = (rows - center).abs().median(0).values
    return ((rows - center) / (spread + 1e-2 * spread.mean() + 1e-12)).clamp(-_FAR, _FAR)
