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
_DELTA = 1e-5  # the default of defenses


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
            **{f"top1_{name}": _copies_ranked_first(predictions, truths, row) for row, name in enumerate(COPIES)},
        }

    def of_set(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Measured]:
        """For artifacts of one image: the lower bound on epsilon from the number of images ranked first."""
        if any(len(truth.index) != 1 for truth in truths):
            return {}
        return {"epsilon_at_least": epsilon_lower_bound(predictions, truths)}

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random scores; an attack adds the ranking by distance from the mean image."""
        return {"noise": list(torch.rand(_NOISES, len(adversary.candidates), generator=rng))}

    def chance(self, adversary: Adversary, truth: GroundTruth) -> float | None:
        return 1 / truth.candidates.shape[1]


def epsilon_lower_bound(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Measured:
    """Lower bound at 95 % on the epsilon of a release of one image, at delta = 1e-5; at most ln N for N candidates.

    Each artifact is one release; its image has a random position among equally likely images of its domain.
    """
    ranked_first = sum(bool((_ranks(p, t) == 0).all()) for p, t in zip(predictions, truths, strict=True))
    candidates = min(truth.candidates.shape[1] for truth in truths)
    if candidates < 2:
        return Measured(value=None, reason="no other candidates", n=len(truths), direction="higher_leaks")
    bound = identification(ranked_first, len(truths), candidates, _DELTA)
    limit = "saturated: all are ranked first" if bound.saturated else f"at most ln {candidates}"
    return Measured(value=bound.epsilon, n=len(truths), direction="higher_leaks", reason=limit)


def _ranks(scores: Prediction, truth: GroundTruth) -> Tensor:
    """Rank (T,) of the true image in each line-up, from 0; ties count half."""
    return _rank_at(scores[: len(truth.positions)] if scores.ndim == 2 else scores[truth.candidates], truth.positions)


def _copies_ranked_first(predictions: Sequence[Prediction], truths: Sequence[GroundTruth], row: int) -> Tensor:
    """Whether (M,) the true image is ranked first in the first line-up, by the scores of copies in this row."""
    ranked_first = []
    for scores, truth in zip(predictions, truths, strict=True):
        copy_scores = scores[truth.candidates[:1]] if scores.ndim == 1 else scores[len(truth.positions) + row][None]
        ranked_first.append((_rank_at(copy_scores, truth.positions[:1]) == 0).float().squeeze())
    return torch.stack(ranked_first)


def _rank_at(scores: Tensor, positions: Tensor) -> Tensor:
    """Rank (T,), from 0, of the entry at `positions` (T,) in each row of scores (T, N); ties count half."""
    true_scores = scores.gather(1, positions[:, None])
    rank: Tensor = ((scores > true_scores).sum(1) + ((scores == true_scores).sum(1) - 1) / 2).float()
    return rank
