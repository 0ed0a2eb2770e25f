"""FedBN: every client keeps its BatchNorm layers, all other tensors are averaged (Li et al., ICLR 2021)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.local_tensors import batchnorm_tensors
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.weights import Weights
from fdgpriv.results.utility import logits

from ._averaging import AveragingClient, FederatedAveraging


@dataclass(frozen=True)
class FedBN(FederatedAveraging):
    """Neither scales and shifts nor statistics of BatchNorm layers cross the wire.

    The layers are found by their type. The released code looks for ``bn`` in their names, so that it averages those of a
    ResNet's shortcuts, whose statistics then leak. As there, clients have equal weights and share no sample counts.

    A domain without a client has no BatchNorm layers: it is evaluated with the initial scales and shifts, and with
    statistics recomputed on its images (`local_statistics`), as is each client in the figures of the global model.
    `personal_accuracy` in the training's log is that of the clients' own final models on their held-out images.
    """

    paper_setup: ClassVar[Setup] = Setup(clients=30, partition="single", backbone="resnet18", image_size=224)
    uses_final: ClassVar[bool] = True

    weights: Weights = "uniform"
    buffers: Literal["keep_local"] = "keep_local"

    @property
    def coupling(self) -> str:
        return "it replaces the BatchNorm layers, and none would stay with the clients"

    def withheld(self, model: nn.Module, sender: str) -> frozenset[str]:
        return batchnorm_tensors(model)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "FedBNClient":
        return FedBNClient(self, federation, data, rng)


class FedBNClient(AveragingClient):
    """Answers ``fit`` and ``validate`` as in federated averaging, and ``use`` with nothing."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model", "log")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.log: dict[str, tuple[float, int]] = {}

    def use(self, message: Message) -> Message:
        """Keeps the final model with its own BatchNorm layers, and logs its accuracy."""
        super().use(message)
        labels = self.data.held_out_labels
        if len(labels):
            correct = logits(self.model, self.data.held_out_pixels).argmax(1) == labels
            self.log["personal_accuracy"] = float(correct.sum()), len(labels)
        return []
