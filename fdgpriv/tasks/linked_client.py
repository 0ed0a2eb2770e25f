"""Task: find the same client's artifact among those of an earlier round."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task

_NOISES = 30


class LinkedClient(Task):
    """A prediction scores every artifact of an earlier round, (N,); ties count half."""

    secret = "identity"
    metric = "top1"
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    perfect = 1.0
    relevant = 0.15
    weighed = False
    ranks = True
    hides_names = True
    scopes: ClassVar[tuple[str, ...]] = ("client",)

    def askable(self, truth: GroundTruth) -> bool:
        return truth.earlier_index >= 0

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((len(adversary.earlier),),)

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        return torch.tensor([float(_rank(p, t.earlier_index) == 0) for p, t in zip(predictions, truths, strict=True)])

    def details(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
        ranks = torch.tensor([_rank(p, t.earlier_index) for p, t in zip(predictions, truths, strict=True)])
        return {"mrr": 1 / (1 + ranks)}

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random scores; an attack adds the ranking by distance from the mean artifact."""
        return {"noise": list(torch.rand(_NOISES, len(adversary.earlier), generator=rng))}

    def chance(self, adversary: Adversary, truth: GroundTruth) -> float | None:
        return 1 / len(adversary.earlier)


def _rank(scores: Tensor, index: int) -> float:
    """The rank of the score at `index`, from 0; ties count half."""
    client_score = scores[index]
    return float((scores > client_score).sum()) + (float((scores == client_score).sum()) - 1) / 2
