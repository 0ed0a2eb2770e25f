"""FedAvg whose clients change the styles of features between stages of the backbone, in training only."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.models.backbone import Classifier
from fdgpriv.utils.fields import Fraction

from ._averaging import FederatedAveraging
from ._federation import Batch


@dataclass(frozen=True)
class StyleAugmentation(FederatedAveraging):
    """Changes the features after each of `layers` with probability `p`; evaluated models change none.

    Attributes:
        p: Probability of the change at each layer and mini-batch.
        layers: Stages of the backbone, by name or by stride; none for all.
    """

    p: Fraction = 0.5
    layers: tuple[str, ...] | None = None

    @abstractmethod
    def changed(self, features: Tensor, rng: torch.Generator) -> Tensor:
        """Features (B, C, H, W) with other styles."""

    @property
    def coupling(self) -> str:
        return "the styles of an image's features are changed by those of the other images in its mini-batch"

    def check(self, model: nn.Module) -> None:
        assert isinstance(model, Classifier)
        for layer in self.layers or ():
            try:
                model.backbone.stage(layer)
            except ValueError as error:
                raise ValueError(f"{self.name()}.layers: {error}") from error

    def loss(self, model: nn.Module, batch: Batch, rng: torch.Generator) -> Tensor:
        assert isinstance(model, Classifier)

        def after(features: Tensor) -> Tensor:
            return self.changed(features, rng) if float(torch.rand((), generator=rng)) < self.p else features

        return nn.functional.cross_entropy(
            model(batch.images, dict.fromkeys(self.layers or model.backbone.stages, after)), batch.labels
        )
