"""MixStyle: clients mix the styles of the features of random pairs of their images (Zhou et al., ICLR 2021)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.moments import PAPER_EPS, adain
from fdgpriv.utils.fields import PositiveFraction

from ._stable_style import beta, mixed
from ._style_augmentation import StyleAugmentation


@dataclass(frozen=True)
class MixStyle(StyleAugmentation):
    """FedAvg, in whose local training each image's features get a mixture of their style and another image's.

    Pairs are random within a mini-batch of one client, as in the paper's variant without domain labels: no style leaves a
    client. Styles are constants to the gradient, as in the paper.

    Attributes:
        alpha: Of Beta(alpha, alpha), from which the weight of an image's own style is drawn.
        layers: Stages of the backbone, by name or by stride; none for all. The released code has the first two, or the three
            of the default.
    """

    layers: tuple[str, ...] | None = ("layer1", "layer2", "layer3")
    alpha: PositiveFraction = 0.1

    def changed(self, features: Tensor, rng: torch.Generator) -> Tensor:
        mean, std = PAPER_EPS(features.detach())
        partner = torch.randperm(len(features), generator=rng)
        weight = beta(self.alpha, len(features), rng)
        return adain(features, *mixed((mean, std), partner, weight), own=(mean, std))
