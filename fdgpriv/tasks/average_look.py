"""Task: reconstruct the mean of all images of an artifact.

Reconstructions answer it with their mean, without further inference. The mean of many images may leak although no single
image does.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.tasks.image_baselines import image_baselines, known_mean
from fdgpriv.tasks.task import Baselines, Predictions, Task


class AverageLook(Task):
    """A prediction is an image (3, H, W) in [0, 1]; the mean is taken of a set (M, 3, H, W)."""

    secret = "average_look"
    metric = "mse"
    higher_leaks = False
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    perfect = 0.0
    relevant = 0.25
    compares_ratios = True
    needs_mean_image = True
    relative_to: ClassVar[tuple[str, ...]] = (
        "noise",
        "mean_image",
        "domain_mean",
        "random_style",
        "other_domain",
        "unconditional",
        "other_client",
    )

    def answer(self, prediction: Prediction) -> Prediction:
        return prediction.mean(0) if prediction.ndim == 4 else prediction

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """The mean squared error (M,) to the true mean image."""
        pairs = zip(predictions, truths, strict=True)
        return torch.stack([(image.double() - truth.mean_image).square().mean() for image, truth in pairs])

    def inapplicable(self, series: ArtifactSeries[Simulator]) -> str | None:
        if series.is_global:
            return "one artifact of all clients has one average look, so there is no other that it could be told from"
        return None

    def askable(self, truth: GroundTruth) -> bool:
        return truth.mean_image.numel() > 0

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """The baselines of reconstructions; the mean of each set."""
        baselines = image_baselines(adversary, predictions.set_size, rng)
        return {name: [self.answer(images) for images in sets] for name, sets in baselines.items()}

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The mean of the adversary's images of this domain, or of all its images."""
        return known_mean(adversary, domain)
