"""Style inversion: images are optimised until their own style is the one that was shared.

The objective is the style loss of Gatys, Ecker and Bethge (CVPR 2016) in the moments of Huang and Belongie (ICCV 2017,
Eq. 13), each channel in units of its spread over public images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Guess, Question, View
from fdgpriv.kinds import InterpolationStyle
from fdgpriv.subjects import StyleCraft
from fdgpriv.threat import Capability

from ._blind import blind
from ._descent import around, descend, total_variation, want_descent
from ._linear import linear_reader
from ._reading import public_images, vectors
from ._reconstruction import Reconstruction

_TOGETHER = 64


@dataclass(frozen=True)
class StyleInversion(Reconstruction):
    """Inverts the public encoder by gradient descent; of a style pooled over images it draws one that has it alone.

    Attributes:
        steps: Of Adam.
        lr: Of the first step, in pixel values.
        restarts: Starts tried, the one with the least objective kept.
        tv: Weight of the total variation.
        prior: Weight of the squared distance from the expected image.
        expected: ``linear``, what ridge regression on public images sees in the style; or ``mean``, their mean.
    """

    reads: ClassVar[tuple[str, ...]] = (StyleStatistics.kind, InterpolationStyle.kind)
    sizes: ClassVar[tuple[int | None, ...]] = (1, 5, None)
    threats: ClassVar[tuple[str, ...]] = ("insider", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"steps": 3}, "paper": {"steps": 2000}}

    steps: int = 10
    lr: float = 0.05
    restarts: int = 1
    tv: float = 0.02
    prior: float = 100.0
    expected: str = "linear"

    def __post_init__(self) -> None:
        want_descent(self.name(), self.steps, self.lr, self.restarts)
        if self.expected not in ("linear", "mean"):
            raise ValueError(f"style_inversion.expected: want linear or mean, got {self.expected!r}")

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        craft = view.craft(StyleCraft, Capability.KNOWS_ENCODER)
        alone = torch.tensor([question.images_behind == 1 or not view.jointly for question in questions])
        drawn = torch.empty(len(questions), 3, view.image_size, view.image_size)
        for mine, among in ((alone, None), (~alone, public_images(view)[0])):
            if mine.any():
                some = [questions[i] for i in mine.nonzero().flatten().tolist()]
                drawn[mine] = self._drawn(view, craft, vectors(view, some), among, rng)
        return list(drawn), blind(view, rng)

    def _drawn(self, view: View, craft: StyleCraft, told: Tensor, among: Tensor | None, rng: torch.Generator) -> Tensor:
        """(M, 3, H, W): images whose styles are those told (M, D), alone or in batches like `among`."""
        images, _ = public_images(view)
        styles = torch.cat([torch.cat(view.styles(domain.images, among), dim=1) for domain in view.auxiliary])
        center, spread = styles.mean(0), styles.std(0) + 1e-3 * styles.std(0).mean() + 1e-8
        asked, place = told[:, : styles.shape[1]].unique(dim=0, return_inverse=True)
        drawn = []
        for some in asked.split(_TOGETHER):
            likely = self._likely(images, (styles - center) / spread, (some - center) / spread)
            starts = around(images.mean(0).expand_as(likely), self.restarts, rng)

            def objective(images: Tensor, some: Tensor = some, likely: Tensor = likely) -> Tensor:
                style = torch.cat(craft.moments(images, among), dim=1)
                apart = ((style - some) / spread).square().mean(1)
                far = (images - likely).square().mean(dim=(1, 2, 3))
                return apart + self.tv * total_variation(images) + self.prior * far

            drawn.append(descend(objective, starts, self.steps, self.lr))
        return torch.cat(drawn)[place]

    def _likely(self, images: Tensor, styles: Tensor, asked: Tensor) -> Tensor:
        """(M, 3, H, W): what public images (P, 3, H, W) of styles (P, D) suggest for the asked styles (M, D)."""
        if self.expected == "mean":
            return images.mean(0).expand(len(asked), -1, -1, -1)
        weight, bias = linear_reader(styles, images)
        return (asked @ weight.T + bias).view(-1, *images.shape[1:]).clamp(0, 1)
