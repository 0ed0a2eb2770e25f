"""Task: identify which candidate of a line-up is among the artifact's images."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.privacy.identification import identification
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.statistics.measured import Measured
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task

COPIES = ("recompressed", "cropped", "flipped")
_NOISES = 5
_DELTA = 1e-5  # as defenses' by default


class Candidate(Task):
    """A prediction scores the candidates of each line-up, (T + 3, N), or every image of the pool, (P,).

    The last three rows score the first line-up for an adversary that holds only copies of the candidates:
    re-compressed, cropped, or flipped.
    """

    secret = "membership"
    metric = "top1"
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    perfect = 1.0
    relevant = 0.1
    weighed = False
    ranks = True
    many_singles = True
    scopes: ClassVar[tuple[str, ...]] = ("client",)

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((len(truth.positions) + len(COPIES), truth.candidates.shape[1]), (len(truth.pool),))

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """The share of line-ups in which the true image is ranked first."""
        return torch.stack([(_ranks(p, t) == 0).float().mean() for p, t in zip(predictions, truths, strict=True)])

    def details(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
        ranks = [_ranks(p, t) for p, t in zip(predictions, truths, strict=True)]
        return {
            "top5": torch.stack([(rank < 5).float().mean() for rank in ranks]),
            "mrr": torch.stack([(1 / (rank + 1)).mean() for rank in ranks]),
            **{f"top1_{name}": _of_copies(predictions, truths, row) for row, name in enumerate(COPIES)},
        }

    def of_set(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Measured]:
        """Of artifacts of one image: the epsilon that the number of images ranked first shows."""
        if any(len(truth.index) != 1 for truth in truths):
            return {}
        return {"epsilon_at_least": epsilon_shown(predictions, truths)}

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random scores; an attack adds the ranking by distance from the mean image."""
        return {"noise": list(torch.rand(_NOISES, len(adversary.candidates), generator=rng))}

    def chance(self, adversary: Adversary, truth: GroundTruth) -> float | None:
        return 1 / truth.candidates.shape[1]


def epsilon_shown(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Measured:
    """Lower bound at 95 % on the epsilon of a release of one image, at delta = 1e-5; at most ln N of N candidates.

    Every artifact is a release of its own, whose image lies at a random place among others of its domain that are as
    likely.
    """
    firsts = sum(bool((_ranks(p, t) == 0).all()) for p, t in zip(predictions, truths, strict=True))
    candidates = min(truth.candidates.shape[1] for truth in truths)
    if candidates < 2:
        return Measured(value=None, reason="no other candidates", n=len(truths), direction="higher_leaks")
    bound = identification(firsts, len(truths), candidates, _DELTA)
    limit = "saturated: all are ranked first" if bound.saturated else f"at most ln {candidates}"
    return Measured(value=bound.epsilon, n=len(truths), direction="higher_leaks", reason=limit)


def _ranks(scores: Prediction, truth: GroundTruth) -> Tensor:
    """Rank (T,) of the true image in each line-up, from 0; ties count half."""
    return _places(scores[: len(truth.positions)] if scores.ndim == 2 else scores[truth.candidates], truth.positions)


def _of_copies(predictions: Sequence[Prediction], truths: Sequence[GroundTruth], row: int) -> Tensor:
    """Whether (M,) the true image is ranked first in the first line-up, scored by the copies of this row."""
    ranked_first = []
    for scores, truth in zip(predictions, truths, strict=True):
        copy_scores = scores[truth.candidates[:1]] if scores.ndim == 1 else scores[len(truth.positions) + row][None]
        ranked_first.append((_places(copy_scores, truth.positions[:1]) == 0).float().squeeze())
    return torch.stack(ranked_first)


def _places(scores: Tensor, positions: Tensor) -> Tensor:
    """Rank (T,) of the entry at `positions` (T,) of each row of scores (T, N)."""
    true_scores = scores.gather(1, positions[:, None])
    rank: Tensor = ((scores > true_scores).sum(1) + ((scores == true_scores).sum(1) - 1) / 2).float()
    return rank
