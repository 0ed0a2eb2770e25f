"""Linkage: which client shared this artifact, told by what all clients shared in an earlier round?

Reference: METHODS 4e, H-S3: re-identification of a client across rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import ModelState, StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.roles import Attack
from fdgpriv.states import BatchNormStatistics, ImportanceWeights, ModelUpdate
from fdgpriv.subjects import Craft, Subject

from ._reading import vectors

_FAR = 3.0
_RIDGE = 0.1  # of the mean variance of an axis


@dataclass(frozen=True)
class Linkage(Attack):
    """Ranks the earlier artifacts by their likeness to the one that is asked about.

    Between rounds the model changes, and with it every client's artifact, much in the same way. So each round's artifacts
    are set in units of their own spread about their own median, and along the axes on which the earlier ones differ those
    that all clients of a domain share are made no longer than the others. Likeness is the cosine of what is left. Its
    positive control is the same clients' artifacts made once more, without defense.
    """

    family: ClassVar[str] = "property"
    reads: ClassVar[tuple[str, ...]] = (
        *(StyleStatistics.kind, ModelState.kind),
        *(ModelUpdate.kind, ImportanceWeights.kind, BatchNormStatistics.kind),
    )
    headline: ClassVar[str] = "top1"
    higher_leaks: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    threats: ClassVar[tuple[str, ...]] = ("server",)
    sizes: ClassVar[tuple[int | None, ...]] = (None,)

    def refuses(self, subject: Subject[Craft]) -> str | None:
        if len(subject.earlier) < 2:
            return f"no {subject.kind.replace('_', ' ')} of the same clients crossed in two rounds that are kept"
        return None

    def fits(self, truth: Truth) -> bool:
        return truth.place >= 0

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        sent = questions[0].sent  # of the earlier round or this: the same for all, so that it falls out with the median
        before = torch.stack([view.vector(artifact, sent) for artifact in view.earlier])
        guesses = likeness(vectors(view, questions), before)
        ordinary = -_standard(before).square().sum(1)
        return list(guesses), {"noise": list(torch.rand(30, len(before), generator=rng)), "mean_image": [ordinary]}

    def chance(self, view: View, truth: Truth) -> float | None:
        return 1 / len(view.earlier)

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return torch.tensor([float(_rank(g, t.place) == 0) for g, t in zip(guesses, truths, strict=True)])

    def describe(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Tensor]:
        ranks = torch.tensor([_rank(g, t.place) for g, t in zip(guesses, truths, strict=True)])
        return {"mrr": 1 / (1 + ranks)}


def likeness(now: Tensor, before: Tensor) -> Tensor:
    """Cosines (M, N) of the artifacts (M, D) of one round with those (N, D) of another, standardised and whitened."""
    ours, theirs = _standard(now), _standard(before)
    axes = torch.linalg.svd(theirs - theirs.mean(0), full_matrices=False)
    variance = axes.S.square() / len(theirs)
    white = axes.Vh.T / (variance + _RIDGE * variance.mean()).sqrt()
    ours, theirs = (torch.nn.functional.normalize(rows @ white, dim=1) for rows in (ours, theirs))
    return ours @ theirs.T


def _standard(rows: Tensor) -> Tensor:
    """Rows (M, D) about their median, in units of their middle distance to it, at most _FAR: odd rows change little."""
    center = rows.median(0).values
    spread = (rows - center).abs().median(0).values
    return ((rows - center) / (spread + 1e-2 * spread.mean() + 1e-12)).clamp(-_FAR, _FAR)


def _rank(scores: Tensor, place: int) -> float:
    """From 0; of what is level with it, half stand before it."""
    own = scores[place]
    return float((scores > own).sum()) + (float((scores == own).sum()) - 1) / 2
