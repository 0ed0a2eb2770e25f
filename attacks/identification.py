"""Identification: which of N candidate images is behind this style, or behind these BatchNorm statistics?

Reference: AUDIT 5.5 and CCST's claim that different data can have the same style (METHODS 5e, H-C2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.kinds import InterpolationStyle
from fdgpriv.roles import Attack
from fdgpriv.states import BatchNormStatistics
from fdgpriv.subjects import Craft, Subject

from ._copies import COPIES, copies
from ._frames import Frame, frames
from ._reading import Practice, practise, sizes_of, want_practice
from ._whitening import shrunk, whitener


@dataclass(frozen=True)
class Identification(Attack):
    """Ranks candidates by the Gaussian likelihood of the artifact if the candidate is one of the n images behind it.

    If x is behind an average over n, the artifact is mean + (style(x) - mean) / n plus what the other n - 1 images and
    the defense's noise add. That remainder's covariance is learned from practice artifacts of the same size, shrunk
    (Ledoit and Wolf 2004); for n = 1 without noise this is the distance of styles, whitened. BatchNorm statistics taken
    anew are read alike, in their first layer.

    A guess scores the candidates of each line-up (T + 3, N); the last three rows are the first line-up again, as it is
    ranked by who holds only a copy of each candidate: re-compressed, cropped, or flipped (`_copies`).

    Attributes:
        practice: Practice artifacts of each size.
        practice_costly: As many where making one takes long.
    """

    family: ClassVar[str] = "identification"
    reads: ClassVar[tuple[str, ...]] = (StyleStatistics.kind, InterpolationStyle.kind, BatchNormStatistics.kind)
    headline: ClassVar[str] = "top1"
    higher_leaks: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    threats: ClassVar[tuple[str, ...]] = ("server", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"practice": 30, "practice_costly": 10}}

    practice: int = 200
    practice_costly: int = 40

    def __post_init__(self) -> None:
        want_practice(self.name(), self.practice, self.practice_costly)

    def sizes_on(self, subject: Subject[Craft]) -> tuple[int | None, ...]:
        return sizes_of(subject, self.sizes)

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        sent = questions[0].sent
        made = practise(view, self.practice_costly if view.costly else self.practice, sent)
        rankings = {n: Ranking.of(frames(view, n, sent), made, n) for n in made.sizes.unique().tolist()}
        known = torch.tensor(sorted(rankings))
        shown = [view.candidates, *copies(view.candidates).values()]
        guesses: list[Guess] = []
        for question in questions:
            n = question.images_behind
            ranking = rankings[int(known[(known - n).abs().argmin()])]
            line_ups = [(shown[0], question.candidates), *((one, question.candidates[:1]) for one in shown[1:])]
            artifact = view.vector(question.artifact, sent)
            guesses.append(torch.cat([ranking(artifact, n, images, index) for images, index in line_ups]))
        prior = rankings[int(known[0])].ordinary(view.candidates)
        return guesses, self._blind(questions, prior, rng)

    def _blind(self, questions: Sequence[Question], prior: Tensor, rng: torch.Generator) -> dict[str, list[Guess]]:
        """Candidates in random order, and the most ordinary candidate first: as a score of every image of the pool."""
        size = len(prior)
        return {"noise": list(torch.rand(5, size, generator=rng)), "mean_image": [prior]}

    def chance(self, view: View, truth: Truth) -> float | None:
        return 1 / truth.candidates.shape[1]

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return torch.stack([(_ranks(g, t) == 0).float().mean() for g, t in zip(guesses, truths, strict=True)])

    def describe(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Tensor]:
        ranks = [_ranks(g, t) for g, t in zip(guesses, truths, strict=True)]
        return {
            "top5": torch.stack([(rank < 5).float().mean() for rank in ranks]),
            "mrr": torch.stack([(1 / (rank + 1)).mean() for rank in ranks]),
            **{f"top1_{name}": _of_copies(guesses, truths, row) for row, name in enumerate(COPIES)},
        }


@dataclass(frozen=True, eq=False)
class Ranking:
    """How likely an artifact of n images is if a candidate is behind it, in the best of the frames it may be in.

    Attributes:
        frames: One, or one for each domain that its client may be of.
        spread: (D,) variance of a public image's style around its frame's center.
        root: (D, D') whitens what the other images and the defense add.
    """

    frames: Sequence[Frame]
    spread: Tensor
    root: Tensor

    @classmethod
    def of(cls, frames: Sequence[Frame], made: Practice, size: int) -> "Ranking":
        """Learned from the practice artifacts of `size` images."""
        styles = torch.cat([frame.own for frame in frames])
        center = torch.cat([frame.center.expand_as(frame.own) for frame in frames])
        spread = (styles - center).square().mean(0).clamp_min(1e-12)
        some = (made.sizes == size).nonzero().flatten()
        first = torch.tensor([int(made.members[i][0]) for i in some.tolist()])
        rest = made.inputs[some, : styles.shape[1]] - center[first] - (styles[first] - center[first]) / size
        return cls(frames, spread, whitener(shrunk(rest, spread), spread))

    def __call__(self, artifact: Tensor, n: int, images: Tensor, index: Tensor) -> Tensor:
        """(T, N): the log-likelihood, up to a constant, of the artifact with each of the images at `index` (T, N)."""
        found = []
        for frame in self.frames:
            expected = frame.center + (frame.styles(images)[index] - frame.center) / n
            found.append(-((artifact[: expected.shape[-1]] - expected) @ self.root).square().sum(-1))
        return torch.stack(found).amax(0)

    def ordinary(self, images: Tensor) -> Tensor:
        """(N,): how near each image's style is to the frame's center."""
        frame = self.frames[0]
        return -((frame.styles(images) - frame.center).square() / self.spread).sum(1)


def _ranks(scores: Guess, truth: Truth) -> Tensor:
    """Rank (T,) of the true image in each line-up, from 0; ties count half of those level with it."""
    return _places(scores[: len(truth.positions)] if scores.ndim == 2 else scores[truth.candidates], truth.positions)


def _of_copies(guesses: Sequence[Guess], truths: Sequence[Truth], row: int) -> Tensor:
    """Whether (M,) the true image is first of the first line-up, by the copies of this row."""
    found = []
    for scores, truth in zip(guesses, truths, strict=True):
        blind = scores[truth.candidates[:1]] if scores.ndim == 1 else scores[len(truth.positions) + row][None]
        found.append((_places(blind, truth.positions[:1]) == 0).float().squeeze())
    return torch.stack(found)


def _places(scores: Tensor, positions: Tensor) -> Tensor:
    """Rank (T,) of the entry at `positions` (T,) of each row of scores (T, N)."""
    own = scores.gather(1, positions[:, None])
    rank: Tensor = ((scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2).float()
    return rank
