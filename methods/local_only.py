"""Local training: each client trains on its own images alone and shares nothing, the papers' lower reference."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import nn

from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Request, Server
from fdgpriv.federation.unfederated import UnsharedModels

from ._unfederated import UnfederatedSGD


@dataclass(frozen=True)
class LocalOnly(UnfederatedSGD):
    """Each client trains as in FedAvg and keeps its model; its accuracy is the mean over the clients' own models."""

    personal: ClassVar[bool] = True

    buffers: Literal["share", "freeze", "freeze_backbone"] = "share"

    def disclosure(self) -> Disclosure:
        return replace(super().disclosure(), shares=False, uploads=(), training=None)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        for round in federation.rounds(self.rounds):
            yield Request("train", {client: [] for client in federation.clients}, number=round, wanted=())
        return UnsharedModels()

    def model_of(self, model: nn.Module, client: str) -> nn.Module:
        assert isinstance(model, UnsharedModels)
        return model.of(client)
