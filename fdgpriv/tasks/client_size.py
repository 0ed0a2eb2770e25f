"""Task: estimate the number of images of an artifact."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task

_NOISES = 30


class SizeOfClient(Task):
    """A prediction is a number of images, ()."""

    secret = "size"
    metric = "relative_error"
    higher_leaks = False
    perfect = 0.0
    relevant = 0.1
    relative_to: ClassVar[tuple[str, ...]] = ("mean_image",)
    scopes: ClassVar[tuple[str, ...]] = ("client",)
    hides_size = True

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((),)

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """|n predicted - n| / n."""
        return torch.tensor([abs(float(p) - t.count) / t.count for p, t in zip(predictions, truths, strict=True)])

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Log-uniform random numbers, and the typical client size, which is public."""
        log_limit = torch.tensor(2.0 * adversary.typical).log()
        sizes = (torch.rand(_NOISES, generator=rng) * log_limit).exp().round()
        return {"noise": list(sizes), "mean_image": [torch.tensor(float(adversary.typical))]}

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The typical client size, which is public."""
        return torch.tensor(float(adversary.typical))
