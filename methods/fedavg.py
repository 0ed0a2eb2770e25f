"""FedAvg: clients train, the server averages (McMahan et al., AISTATS 2017). The reference of every audit."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.artifact import Message
from fdgpriv.federation import Federation, LocalData
from fdgpriv.models.backbone import Classifier
from fdgpriv.roles import Server

from ._averaging import averaging, fitted
from ._federation import Batch, FederatedSGD


@dataclass(frozen=True)
class FedAvg(FederatedSGD):
    """Federated averaging; the defaults are the baseline's settings in StableFDG's experiments.

    Attributes:
        weighting: ``samples`` weighs clients by n_k, which they then share; ``uniform`` does not.
    """

    weighting: str = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weighting not in ("samples", "uniform"):
            raise ValueError(f"fedavg.weighting: want samples or uniform, got {self.weighting!r}")

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return Classifier(federation.backbone(rng), federation.classes, rng)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        return (yield from averaging(self.model(federation, rng), federation, self, rng))

    def client(self, federation: Federation, data: LocalData, rng: torch.Generator) -> "FedAvgClient":
        return FedAvgClient(self, federation, data, rng)


class FedAvgClient:
    """Answers ``fit``: trains the global model on its own data."""

    def __init__(self, method: FedAvg, federation: Federation, data: LocalData, rng: torch.Generator) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.model = method.model(federation, rng).to(self.device)

    def fit(self, message: Message) -> Message:
        """The model after E local epochs, and n_k where the average is weighted by it."""
        counted = self.method.weighting == "samples"
        return fitted(self.model, self._loss, message, self.data, self.method, self.rng, self.device, counted)

    def _loss(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch.images), batch.labels)
