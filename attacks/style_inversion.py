"""Style inversion: optimises images until their style equals a shared style.

The objective is the style loss of Gatys, Ecker and Bethge (CVPR 2016) in the moments of Huang and Belongie (ICCV 2017,
Eq. 13), each channel in units of its spread over public images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.tasks.images import Images
from fdgpriv.threat import Capability
from fdgpriv.utils.fields import PositiveFloat, PositiveInt

from ._inversion import ImageRegression, around, descend, total_variation
from ._simulation import center_and_spread

_BATCH_SIZE = 64


@dataclass(frozen=True)
class StyleInversion(Attack):
    """Inverts the public encoder by gradient descent; for a group's style it reconstructs a single image of that style.

    Attributes:
        steps: Steps of Adam.
        lr: Of the first step, in pixel values.
        restarts: Random starts; the result with the smallest objective is used.
        tv: Weight of the total variation.
        prior: Weight of the squared distance from the expected image.
        expected: ``regression``, kernel ridge regression learned from simulated artifacts, defense included; or ``mean``, the
            public images' mean.
    """

    reads = (StyleStatistics, InterpolationStyle)
    task = Images()
    group_sizes = (1, 5, None)
    threats = ("insider", "server", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"steps": 3},
        "thorough": {"steps": 100},
        "paper": {"steps": 2000},
    }

    steps: PositiveInt = 10
    lr: PositiveFloat = 0.05
    restarts: PositiveInt = 1
    tv: float = 0.02
    prior: float = 100.0
    expected: Literal["regression", "mean"] = "regression"

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        simulator = adversary.simulator(StyleSimulator, Capability.KNOWS_ENCODER)
        is_separate = torch.tensor(
            [observation.n_images == 1 or not adversary.uses_batch_statistics for observation in observations]
        )
        images = torch.empty(len(observations), 3, adversary.image_size, adversary.image_size)
        for in_group, among in ((is_separate, None), (~is_separate, adversary.public_images[0])):
            if in_group.any():
                group = [observations[i] for i in in_group.nonzero().flatten().tolist()]
                images[in_group] = self._reconstructed(adversary, simulator, adversary.vectors(group), among, rng)
        return images

    def _reconstructed(
        self,
        adversary: Adversary,
        simulator: StyleSimulator,
        vectors: Tensor,
        among: Tensor | None,
        rng: torch.Generator,
    ) -> Tensor:
        """Images (M, 3, H, W) with these style vectors (M, D), each normalised by itself, or in batches with `among`."""
        styles = torch.cat([torch.cat(adversary.styles(domain.images, among), dim=1) for domain in adversary.practice])
        _, spread = center_and_spread(styles)
        vectors, inverse = vectors.unique(dim=0, return_inverse=True)
        reconstructions = []
        mean, predicted = adversary.practice_images[0].mean(0), self._expected_images(adversary, vectors)
        for batch, expected in zip(vectors.split(_BATCH_SIZE), predicted.split(_BATCH_SIZE), strict=True):
            starts = around(mean.expand_as(expected), self.restarts, rng)
            target_styles = batch[:, : styles.shape[1]]

            def objective(images: Tensor, target_styles: Tensor = target_styles, expected: Tensor = expected) -> Tensor:
                style = torch.cat(simulator.moments(images, among), dim=1)
                style_distance = ((style - target_styles) / spread).square().mean(1)
                squared_distance = (images - expected).square().mean(dim=(1, 2, 3))
                return style_distance + self.tv * total_variation(images) + self.prior * squared_distance

            reconstructions.append(descend(objective, starts, self.steps, self.lr))
        return torch.cat(reconstructions)[inverse]

    def _expected_images(self, adversary: Adversary, vectors: Tensor) -> Tensor:
        """(M, 3, H, W): the expected images of artifacts with these vectors (M, D)."""
        if self.expected == "mean":
            return adversary.practice_images[0].mean(0).expand(len(vectors), -1, -1, -1)
        regression = ImageRegression.of(adversary, "rbf")
        return regression(regression.simulated.standardised(vectors)).clamp(0, 1)
