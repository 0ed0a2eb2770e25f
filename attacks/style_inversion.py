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

_TOGETHER = 64


@dataclass(frozen=True)
class StyleInversion(Attack):
    """Inverts the public encoder by gradient descent; for a group's style it reconstructs one image that has that style.

    Attributes:
        steps: Steps of Adam.
        lr: Of the first step, in pixel values.
        restarts: Random starts; the one with the least objective is kept.
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
        separate = torch.tensor(
            [observation.n_images == 1 or not adversary.uses_batch_statistics for observation in observations]
        )
        drawn = torch.empty(len(observations), 3, adversary.image_size, adversary.image_size)
        for mine, among in ((separate, None), (~separate, adversary.public_images[0])):
            if mine.any():
                some = [observations[i] for i in mine.nonzero().flatten().tolist()]
                drawn[mine] = self._drawn(adversary, simulator, adversary.vectors(some), among, rng)
        return drawn

    def _drawn(
        self,
        adversary: Adversary,
        simulator: StyleSimulator,
        vectors: Tensor,
        among: Tensor | None,
        rng: torch.Generator,
    ) -> Tensor:
        """Images (M, 3, H, W) with these style vectors (M, D), each normalised by itself or in batches like `among`."""
        styles = torch.cat([torch.cat(adversary.styles(domain.images, among), dim=1) for domain in adversary.practice])
        _, spread = center_and_spread(styles)
        vectors, place = vectors.unique(dim=0, return_inverse=True)
        drawn = []
        mean, predicted = adversary.practice_images[0].mean(0), self._expected(adversary, vectors)
        for some, expected in zip(vectors.split(_TOGETHER), predicted.split(_TOGETHER), strict=True):
            starts = around(mean.expand_as(expected), self.restarts, rng)
            wanted = some[:, : styles.shape[1]]

            def objective(images: Tensor, wanted: Tensor = wanted, expected: Tensor = expected) -> Tensor:
                style = torch.cat(simulator.moments(images, among), dim=1)
                apart = ((style - wanted) / spread).square().mean(1)
                far = (images - expected).square().mean(dim=(1, 2, 3))
                return apart + self.tv * total_variation(images) + self.prior * far

            drawn.append(descend(objective, starts, self.steps, self.lr))
        return torch.cat(drawn)[place]

    def _expected(self, adversary: Adversary, vectors: Tensor) -> Tensor:
        """(M, 3, H, W): the images expected of artifacts with these vectors (M, D)."""
        if self.expected == "mean":
            return adversary.practice_images[0].mean(0).expand(len(vectors), -1, -1, -1)
        regression = ImageRegression.of(adversary, "rbf")
        return regression(regression.simulated.standardised(vectors)).clamp(0, 1)
