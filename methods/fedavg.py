"""FedAvg: clients train, the server averages (McMahan et al., AISTATS 2017). The baseline of audits."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from fdgpriv.federation.federation import Federation
from fdgpriv.federation.setup import Setup

from ._averaging import FederatedAveraging
from ._client_network import ClientNetwork


@dataclass(frozen=True)
class FedAvg(FederatedAveraging):
    """Federated averaging; the defaults are the baseline's settings in StableFDG's experiments, but for `weights`.

    These are McMahan et al.'s; StableFDG's released code averages all methods' models with equal weights.

    Attributes:
        network: The ``backbone`` with a linear head, as in the style-based methods, or ``inception``, the client network of
            hFedF, as in its paper's FedAvg.
    """

    paper_setup: ClassVar[Setup] = Setup(clients=30, partition="single", backbone="resnet18", image_size=224)

    network: Literal["backbone", "inception"] = "backbone"

    @property
    def coupling(self) -> None:
        return None

    @property
    def own_network(self) -> bool:
        return self.network == "inception"

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        if self.network == "inception":
            return self.local_training.network(ClientNetwork(federation.classes, federation.image_size, rng))
        return super().model(federation, rng)
