"""A classifier with an embedding of its own between backbone and head."""

import torch
from torch import Tensor, nn

from fdgpriv.draws import drawing_from
from fdgpriv.models.backbone import After, Backbone, Classifier


class EmbeddingClassifier(Classifier):
    """A classifier whose head reads a linear map of the pooled features, as wide as they are: the embedding z."""

    def __init__(self, backbone: Backbone, classes: int, rng: torch.Generator) -> None:
        super().__init__(backbone, classes, rng)
        with drawing_from(rng):
            self.project = nn.Linear(backbone.out_channels, backbone.out_channels)

    def embedding(self, images: Tensor, after: After | None = None) -> Tensor:
        projected: Tensor = self.project(super().embedding(images, after))
        return projected
