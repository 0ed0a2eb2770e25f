"""gPerXAN: personal BatchNorm assembled with InstanceNorm, and regularisation by the global head (Le et al., CVPR 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.local_tensors import batchnorm_tensors
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.setup import Setup
from fdgpriv.models.backbone import Classifier
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt

from ._averaging import AveragingClient, FederatedAveraging, received
from ._federation import Batch


@dataclass(frozen=True)
class GPerXAN(FederatedAveraging):
    """Clients upload their whole network, every BatchNorm layer with its statistics included, as in the released code.

    The server sends it back without BatchNorm layers, of which each client keeps its own. It averages them all the same,
    for the model that is tested on a domain without a client. The released code's clients also report accuracies of the
    model that they receive, as `selection=validation` does.

    Attributes:
        regulariser: lambda, weight of the cross-entropy of the received head, which is fixed, on the client's features.
    """

    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet50", image_size=224)

    rounds: PositiveInt = 100
    participants: PositiveInt | None = None
    local_epochs: PositiveInt = 1
    lr: PositiveFloat = 2e-3
    regulariser: NonNegativeFloat = 0.5

    @property
    def coupling(self) -> str:
        return "the gradients of single images for the scores of its normalisation layers are not known"

    def withheld(self, model: nn.Module, sender: str) -> frozenset[str]:
        return batchnorm_tensors(model) if sender == SERVER else super().withheld(model, sender)

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        model = Classifier(federation.backbone(rng), federation.classes, rng)
        for name, layer in list(model.named_modules()):
            if isinstance(layer, nn.BatchNorm2d):
                parent, _, leaf = name.rpartition(".")
                setattr(model.get_submodule(parent), leaf, AssembledNorm(layer))
        return self.local_training.network(model)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "GPerXANClient":
        return GPerXANClient(self, federation, data, rng)


class AssembledNorm(nn.Module):
    """Sum of BatchNorm and InstanceNorm, both with scales and shifts, weighted by the softmax of two learned scores."""

    def __init__(self, batchnorm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.batchnorm = batchnorm
        self.instancenorm = nn.InstanceNorm2d(batchnorm.num_features, eps=batchnorm.eps, affine=True)
        self.scores = nn.Parameter(torch.zeros(2))

    def forward(self, features: Tensor) -> Tensor:
        """Normalised features (B, C, H, W)."""
        batch, instance = self.scores.softmax(0)
        normalised: Tensor = batch * self.batchnorm(features) + instance * self.instancenorm(features)
        return normalised


class GPerXANClient(AveragingClient):
    """Answers ``fit`` and ``validate`` with its own BatchNorm layers."""

    method: GPerXAN
    model: Classifier
    received_head: tuple[Tensor, Tensor]

    def fit(self, message: Message) -> Message:
        """As in federated averaging."""
        state = received(message).state
        self.received_head = state["head.weight"].to(self.device), state["head.bias"].to(self.device)
        return super().fit(message)

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of the trained head and, weighted, of the received one, both on the trained features."""
        features = self.model.embedding(batch.images)
        fixed = nn.functional.cross_entropy(nn.functional.linear(features, *self.received_head), batch.labels)
        trained = nn.functional.cross_entropy(self.model.head(features), batch.labels)
        return trained + self.method.regulariser * fixed
