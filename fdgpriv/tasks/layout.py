"""Task: infer where the single image of an artifact is light and where it is dark."""

from collections.abc import Sequence
from math import isqrt
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task

_NOISES = 30
_ROUNDING = 1e-6


class Layout(Task):
    """A prediction is a layout (cells * cells,): brightness over a grid, of any scale and mean."""

    secret = "content"
    metric = "r2"
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    perfect = 1.0
    relevant = 0.1

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return tuple((cells * cells,) for cells in range(1, truth.source.shape[-1] + 1))

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """The squared correlation over the cells; 0 if the prediction or the truth is constant."""
        predicted = torch.stack(list(predictions)).double()
        true = layout(torch.stack([truth.images[0] for truth in truths]).double(), isqrt(predicted.shape[1]))
        return (unit(predicted - predicted.mean(1, keepdim=True)) * unit(true)).sum(1).square().clamp_max(1)

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random layouts, the mean layout of the public images, and that of each public domain."""
        cells = len(predictions[0])
        noise = list(torch.randn(_NOISES, cells, generator=rng))
        layouts = [unit(layout(domain.images, isqrt(cells))) for domain in adversary.auxiliary]
        means = {f"domain_mean:{d.name}": [rows.mean(0)] for d, rows in zip(adversary.auxiliary, layouts, strict=True)}
        return {"noise": noise, "mean_image": [torch.cat(layouts).mean(0)], **means}

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The mean layout of the adversary's images of this domain, or of all its images."""
        cells = isqrt(len(like))

        def mean() -> Tensor:
            return unit(layout(adversary.images_of(domain), cells)).mean(0)

        mean_layout: Tensor = adversary.cache.get(("mean layout", domain, cells), mean)
        return mean_layout

    def blend(self, prediction: Prediction, prior_prediction: Prediction, weight: float) -> Prediction:
        predicted, prior = unit(prediction[None])[0], unit(prior_prediction[None])[0]
        return weight * predicted + (1 - weight) * prior


def layout(images: Tensor, cells: int) -> Tensor:
    """(N, cells * cells): the brightness of images (N, 3, H, W) averaged over a grid, row by row, minus its mean."""
    grid = F.adaptive_avg_pool2d(images.mean(1, keepdim=True), cells).flatten(1)
    return grid - grid.mean(1, keepdim=True)


def unit(rows: Tensor) -> Tensor:
    """Rows (N, D) scaled to length 1; rows that are 0 up to rounding become 0."""
    length = rows.norm(dim=1, keepdim=True)
    return torch.where(length > _ROUNDING, rows / length.clamp_min(_ROUNDING), 0)
