"""FPL: clients share the mean feature of each class, and train towards clusters of all clients' (Huang et al., CVPR 2023)."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.prototypes import ClassPrototypes, ClusterPrototypes
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers, Request
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt

from ._averaging import Aggregation, AveragingClient, FederatedAveraging
from ._federation import Batch, Schedule, answered
from ._prototypes import class_means, clustered, prototype_loss


@dataclass(frozen=True)
class FPL(FederatedAveraging):
    """Federated prototype learning; the defaults are the paper's, but for its network (ResNet-10).

    The server's mean prototype of a class is the mean of its cluster prototypes, which clients compute, as in the released
    code. A class prototype is a mean over the features of the last epoch, whose weights change from step to step.

    Attributes:
        temperature: Of the contrast with the cluster prototypes.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = FederatedAveraging.presets
    paper_setup: ClassVar[Setup] = Setup(clients=20, partition="single", backbone="resnet18", image_size=32)

    rounds: PositiveInt = 100
    participants: PositiveInt | None = None
    local_epochs: PositiveInt = 10
    batch_size: PositiveInt = 64
    lr: PositiveFloat = 0.01
    weight_decay: NonNegativeFloat = 1e-5
    schedule: Schedule = "constant"
    temperature: PositiveFloat = 0.02

    @property
    def coupling(self) -> str:
        return "mean features of its mini-batches leave the client beside the model"

    def disclosure(self) -> Disclosure:
        common, kind = super().disclosure(), ClassPrototypes.kind
        reason = (
            "not evaluated: each is the mean of several clients' prototypes of a class, without their names; of a class that "
            "one client has alone it is this client's, of which every client then learns what the server does from "
            "class_prototypes"
        )
        unread = {ClusterPrototypes.kind: reason}
        return replace(common, uploads=(kind, *common.uploads), individual=(kind,), not_evaluated=unread)

    def aggregation(self, federation: Federation) -> "FPLAggregation":
        return FPLAggregation(self, federation)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "FPLClient":
        return FPLClient(self, federation, data, rng)


class FPLAggregation(Aggregation):
    """Averages models, asks for prototypes, and sends their clusters with the next round's model."""

    checkpointed: ClassVar[tuple[str, ...]] = ("clusters",)

    def __init__(self, method: FPL, federation: Federation) -> None:
        super().__init__(method)
        self.classes = federation.classes
        self.width = federation.backbone(torch.Generator()).out_channels
        self.clusters: list[Artifact] = []

    def relayed(self, client: str) -> Message:
        return self.clusters

    def further(self, clients: Sequence[str], round: int) -> Generator[Request, Answers, None]:
        """Asks for the prototypes of the models just trained, and clusters them."""
        template = ClassPrototypes(client=SERVER, round=round, features=torch.zeros(self.classes, self.width))
        messages: dict[str, Message] = {client: [] for client in clients}
        answers = yield Request("prototypes", messages, number=round, wanted=[ExpectedArtifact(template)])
        if shared := list(answered(answers, ClassPrototypes).values()):
            self.clusters = [clustered(shared, round)]


class FPLClient(AveragingClient):
    """Answers ``fit`` as in FedAvg, and ``prototypes`` with the mean features of the last epoch."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model", "round", "steps")

    method: FPL

    def __init__(self, method: FPL, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        super().__init__(method, federation, data, rng)
        self.classes, self.round = federation.classes, 0
        self.clusters: list[ClusterPrototypes] = []
        self.steps: list[tuple[Tensor, Tensor]] = []  # features (B, D) and labels (B,) of each mini-batch

    def fit(self, message: Message) -> Message:
        self.clusters = [artifact for artifact in message if isinstance(artifact, ClusterPrototypes)]
        self.steps = []
        answer = super().fit(message)
        self.round = answer[0].round
        self.steps = self.steps[-(len(self.steps) // self.method.local_epochs) :]
        return answer

    def prototypes(self, message: Message) -> Message:
        """The mean feature of each class in the last epoch."""
        features, labels = (torch.cat(parts) for parts in zip(*self.steps, strict=True))
        means = class_means(features, labels, self.classes)
        return [ClassPrototypes(client=self.data.client, round=self.round, features=means)]

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy, contrast with the cluster prototypes and distance from the mean prototypes."""
        model: Any = self.model
        features: Tensor = model.embedding(batch.images)
        self.steps.append((features.detach().cpu(), batch.labels.cpu()))
        loss: Tensor = torch.nn.functional.cross_entropy(model.head(features), batch.labels)
        for clusters in self.clusters:
            loss = loss + prototype_loss(features, batch.labels, clusters, self.method.temperature)
        return loss
