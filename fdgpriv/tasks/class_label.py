"""Task: classify the single image of an artifact."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task

_NOISES = 30


class ClassLabel(Task):
    """A prediction scores every class, (K,); the largest score decides."""

    secret = "labels"
    metric = "balanced_accuracy"
    perfect = 1.0
    relevant = 0.2

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((adversary.classes,),)

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """Hits, weighted so that their mean is the balanced accuracy."""
        labels = torch.stack([truth.labels[0] for truth in truths])
        count = labels.bincount()
        weight = len(labels) / (int((count > 0).sum()) * count[labels])
        hits = torch.tensor([float(p.argmax() == label) for p, label in zip(predictions, labels, strict=True)])
        return hits * weight

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random classes, the most frequent class, and the most frequent class of each domain."""
        noise = torch.rand(_NOISES, adversary.classes, generator=rng)
        by_domain = {f"domain_shares:{name}": [shares] for name, shares in adversary.shares_by_domain.items()}
        return {"noise": list(noise), "public_shares": [adversary.public_shares], **by_domain}

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The share of each class among the adversary's images."""
        return adversary.public_shares

    def blend(self, prediction: Prediction, prior_prediction: Prediction, weight: float) -> Prediction:
        return weight * prediction.softmax(-1) + (1 - weight) * prior_prediction

    def chance(self, adversary: Adversary, truth: GroundTruth) -> float | None:
        return 1 / adversary.classes
