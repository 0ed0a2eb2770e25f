"""Exact recovery: solves in closed form for the styles of one or two images from the style of their group."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.tasks.exact_styles import ExactStyles


@dataclass(frozen=True)
class ExactRecovery(Attack):
    """Solves for the single-image styles from their mean and variance over the artifact's images.

    A prediction holds two values of each component of a style (2, D). Which of two images has which value is unknown,
    for each component. Where no variances are shared both values are the mean, which is exact for a single image only.
    For more than two images the two values merely approximate the styles: a leak there is not a recovery (see
    ``recovered``).
    """

    reads = (StyleStatistics,)
    task = ExactStyles()
    threats = ("server", "client")
    group_sizes = (1, 2, None)

    def infer(
        self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
    ) -> list[Prediction]:
        return [solved(observation.artifact) for observation in observations]


def solved(artifact: object) -> Tensor:
    """(2, 2C): both values of each channel's mean and standard deviation."""
    assert isinstance(artifact, StyleStatistics)
    has_variances = len(artifact.mean_var) > 0
    mean_var, std_var = (
        (artifact.mean_var, artifact.std_var) if has_variances else (artifact.mean * 0, artifact.std * 0)
    )
    return torch.cat([two_values(artifact.mean, mean_var), two_values(artifact.std, std_var)], dim=1)


def two_values(mean: Tensor, variance: Tensor) -> Tensor:
    """The two values (2, C) with mean `mean` (C,) and biased variance `variance` (C,), the lower value first.

    They are mean -+ sqrt(variance): exact for one image (twice the same value) and for two, though which values of two
    channels belong to the same image stays unknown. For more images they only have the same moments.
    """
    deviation = variance.clamp_min(0).sqrt()
    return torch.stack([mean - deviation, mean + deviation])
