"""Task: infer the source domain of an artifact's images."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task

_NOISES = 30
_SIMILAR_SHARE = 0.9  # domains with at least this share of the largest domain's images count as equally frequent


class DomainLabel(Task):
    """A prediction scores every source domain, (D,); the largest score decides."""

    secret = "domain"
    metric = "accuracy"
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    perfect = 1.0
    relevant = 0.2
    hides_domain = True
    scopes: ClassVar[tuple[str, ...]] = ("domain",)

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((len(adversary.sources),),)

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        return torch.tensor([float(p.argmax() == t.domain) for p, t in zip(predictions, truths, strict=True)])

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random domains, and each of the most frequent domains."""
        count = len(adversary.sources)
        share = torch.tensor([len(domain) for domain in adversary.auxiliary], dtype=torch.float32)
        most_frequent = (share >= _SIMILAR_SHARE * share.max()).nonzero().flatten()
        noise = torch.rand(_NOISES, count, generator=rng)
        return {"noise": list(noise), "mean_image": list(torch.eye(len(share))[most_frequent])}

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The share of each domain among the adversary's images."""
        share = torch.tensor([float(len(domain)) for domain in adversary.auxiliary])
        return share / share.sum()

    def blend(self, prediction: Prediction, prior_prediction: Prediction, weight: float) -> Prediction:
        return weight * prediction.softmax(-1) + (1 - weight) * prior_prediction

    def chance(self, adversary: Adversary, truth: GroundTruth) -> float | None:
        return 1 / len(adversary.sources)
