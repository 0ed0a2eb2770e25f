"""FedAvg: clients train, the server averages (McMahan et al., AISTATS 2017). The reference of every audit."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from fdgpriv.federation import Federation
from fdgpriv.setup import Setup

from ._averaging import FederatedAveraging
from ._client_network import ClientNetwork

NETWORKS = ("backbone", "inception")


@dataclass(frozen=True)
class FedAvg(FederatedAveraging):
    """Federated averaging; the defaults are the baseline's settings in StableFDG's experiments.

    Attributes:
        network: The ``backbone`` with a linear head, as the style methods have; or ``inception``, the client network of
            hFedF, whose paper's FedAvg has it.
    """

    paper_setup: ClassVar[Setup] = Setup(clients=30, partition="single", backbone="resnet18", image_size=224)

    network: str = "backbone"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in NETWORKS:
            raise ValueError(f"fedavg.network: want one of {', '.join(NETWORKS)}; got {self.network!r}")

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        if self.network == "inception":
            return ClientNetwork(federation.classes, federation.image_size, rng)
        return super().model(federation, rng)
