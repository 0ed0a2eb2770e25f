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
from fdgpriv.states import ModelUpdate
from fdgpriv.subjects import Craft, Subject

from ._reading import vectors


@dataclass(frozen=True)
class Linkage(Attack):
    """Ranks the earlier artifacts by their likeness to the one that is asked about.

    Between rounds the model changes, and with it every client's artifact, much in the same way. So each round's artifacts
    are set in units of their own spread about their own mean; likeness is the cosine of what is left. Its positive
    control is the same clients' artifacts made once more, without defense.
    """

    family: ClassVar[str] = "property"
    reads: ClassVar[tuple[str, ...]] = (StyleStatistics.kind, ModelState.kind, ModelUpdate.kind)
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
        sent = questions[0].sent  # of the earlier round or this: the same for all, so that it falls out with the mean
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
    """Cosines (M, N) of the artifacts (M, D) of one round with those (N, D) of another, each round standardised."""
    ours, theirs = (torch.nn.functional.normalize(_standard(rows), dim=1) for rows in (now, before))
    return ours @ theirs.T


def _standard(rows: Tensor) -> Tensor:
    """Rows (M, D) about their mean, in units of their spread; what never varies says nothing."""
    spread = rows.std(0)
    return (rows - rows.mean(0)) / (spread + 1e-3 * spread.mean() + 1e-12)


def _rank(scores: Tensor, place: int) -> float:
    """From 0; of what is level with it, half stand before it."""
    own = scores[place]
    return float((scores > own).sum()) + (float((scores == own).sum()) - 1) / 2
