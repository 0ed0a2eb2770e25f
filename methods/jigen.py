"""JiGen: clients also learn to solve jigsaw puzzles of their images (Carlucci et al., CVPR 2019)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.federation.federation import Federation
from fdgpriv.models.backbone import Backbone, Classifier, drawing_from
from fdgpriv.utils.fields import Fraction, NonNegativeFloat

from ._averaging import FederatedAveraging
from ._federation import Batch
from ._jigsaw import GRID, orders, shuffled

_ORDERS = 31  # the image as it is, and the paper's 30 permutations


class JigsawClassifier(Classifier):
    """A classifier with a second linear head, for the order of an image's tiles."""

    def __init__(self, backbone: Backbone, classes: int, rng: torch.Generator) -> None:
        super().__init__(backbone, classes, rng)
        with drawing_from(rng):
            self.jigsaw = nn.Linear(backbone.out_channels, _ORDERS)


@dataclass(frozen=True)
class JiGen(FederatedAveraging):
    """FedAvg with a second task: in which of 31 orders are the 3 x 3 tiles of an image? Both heads are shared.

    The first loss is the mean over the images in order, as in the paper; the second is over all images. Its weight and the
    share of images in order are those of CCST's experiments; the paper chooses them for each data set.

    Attributes:
        jigsaw_weight: Of the second loss.
        bias_whole_image: Probability that an image stays in order; otherwise one of 30 permutations is drawn.
    """

    jigsaw_weight: NonNegativeFloat = 0.7
    bias_whole_image: Fraction = 0.9

    @property
    def coupling(self) -> str:
        return "its classification loss is the mean over those images of a mini-batch whose tiles are in order"

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        if federation.image_size < GRID:
            raise ValueError(f"jigen: want images of at least {GRID} px to cut into tiles, got {federation.image_size}")
        return self.local_training.network(JigsawClassifier(federation.backbone(rng), federation.classes, rng))

    def loss(self, model: nn.Module, batch: Batch, rng: torch.Generator) -> Tensor:
        assert isinstance(model, JigsawClassifier)
        order = torch.randint(1, _ORDERS, (len(batch),), generator=rng)
        order[torch.rand(len(batch), generator=rng) < self.bias_whole_image] = 0
        embedding = model.embedding(shuffled(batch.images, orders(_ORDERS)[order]))
        order = order.to(embedding.device)
        in_order = order == 0
        by_image = nn.functional.cross_entropy(model.head(embedding), batch.labels, reduction="none")
        classification = (by_image * in_order).sum() / in_order.sum().clamp_min(1)
        return classification + self.jigsaw_weight * nn.functional.cross_entropy(model.jigsaw(embedding), order)
