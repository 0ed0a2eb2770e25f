"""gPerXAN: personal BatchNorm assembled with InstanceNorm, and regularisation by the global head (Le et al., CVPR 2024)."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.local_tensors import LocalModule, batchnorm_tensors, tensors_of
from fdgpriv.artifacts.statistics import ModelEvaluation
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.models.backbone import Classifier
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt

from . import _expected_answers
from ._averaging import FederatedAveraging, StatefulClient, received
from ._federation import Batch
from ._model_evaluation import Metric, evaluations, want_held_out

_METRICS: tuple[Metric, ...] = ("loss", "accuracy")


@dataclass(frozen=True)
class GPerXAN(FederatedAveraging):
    """Clients upload their whole network, every BatchNorm layer with its statistics included, as in the released code.

    The server sends it back without BatchNorm layers and without their scores, of which each client keeps its own. It
    averages them all the same, for the model that is tested on a domain without a client. Each round clients also report
    loss and accuracy of the model that they have trained, on their held-out images; a client's optimiser keeps its momentum
    from round to round.

    Departures from the released code: it returns the average of the round whose clients report the highest mean accuracy
    (here the last one, or by `selection=validation` that with the highest accuracy as received), changes colours of half of
    the images, and its cosine schedule is one round ahead.

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

    def disclosure(self) -> Disclosure:
        common, kind = super().disclosure(), ModelEvaluation.kind
        reason = "not evaluated: each is of a model whose BatchNorm statistics stay with the client"
        unread = {kind: reason} if self.local_statistics else {}
        often = {**common.often, kind: 2 * self.rounds}
        return replace(common, uploads=(*common.uploads, kind), often=often, not_evaluated=unread)

    def expected_fit(self, model: nn.Module, round: int) -> list[ExpectedArtifact]:
        expected = [_expected_answers.evaluation(metric, trained=True) for metric in _METRICS]
        return [*super().expected_fit(model, round), *expected]

    def withheld(self, model: nn.Module, sender: str) -> frozenset[str]:
        if sender != SERVER:
            return super().withheld(model, sender)
        return batchnorm_tensors(model) | tensors_of(model, BatchNormScore)

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        model = Classifier(federation.backbone(rng), federation.classes, rng)
        for name, layer in list(model.named_modules()):
            if isinstance(layer, nn.BatchNorm2d):
                parent, _, leaf = name.rpartition(".")
                setattr(model.get_submodule(parent), leaf, AssembledNorm(layer))
        return self.local_training.network(model)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "GPerXANClient":
        return GPerXANClient(self, federation, data, rng)


class BatchNormScore(LocalModule):
    """The learned score of a BatchNorm layer, which stays with its client as the layer does."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.ones(()))


class AssembledNorm(nn.Module):
    """Sum of BatchNorm and InstanceNorm, both with scales and shifts, weighted by the softmax of two learned scores."""

    def __init__(self, batchnorm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.batchnorm = batchnorm
        self.instancenorm = nn.InstanceNorm2d(batchnorm.num_features, eps=batchnorm.eps, affine=True)
        self.batchnorm_score = BatchNormScore()
        self.instancenorm_score = nn.Parameter(torch.ones(()))

    def forward(self, features: Tensor) -> Tensor:
        """Normalised features (B, C, H, W)."""
        batch, instance = torch.stack([self.batchnorm_score.value, self.instancenorm_score]).softmax(0)
        normalised: Tensor = batch * self.batchnorm(features) + instance * self.instancenorm(features)
        return normalised


class GPerXANClient(StatefulClient):
    """Answers ``fit`` and ``validate`` with its own BatchNorm layers."""

    method: GPerXAN
    model: Classifier
    received_head: tuple[Tensor, Tensor]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        want_held_out(self.method, self.data)

    def fit(self, message: Message) -> Message:
        """As in federated averaging, and loss and accuracy of the trained model."""
        sent = received(message)
        self.received_head = sent.state["head.weight"].to(self.device), sent.state["head.bias"].to(self.device)
        answer = super().fit(message)
        return [*answer, *evaluations(self.model, self.data, sent.round, _METRICS, trained=True)]

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of the trained head and, weighted, of the received one, both on the trained features."""
        features = self.model.embedding(batch.images)
        fixed = nn.functional.cross_entropy(nn.functional.linear(features, *self.received_head), batch.labels)
        trained = nn.functional.cross_entropy(self.model.head(features), batch.labels)
        return trained + self.method.regulariser * fixed
