"""Trainings that are no federation: on the images of all clients at one place, or of each client by itself."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import joined
from fdgpriv.federation.disclosure import FederatedMethod

POOL = "pool"  # the name of the one participant that holds all images


def participants_of(method: FederatedMethod, data: Mapping[str, ClientData]) -> Mapping[str, ClientData]:
    """The data of those that train: each client's own, or where the method `pools_images`, all at one participant."""
    return {POOL: _pooled(list(data.values()))} if method.pools_images and data else data


def _pooled(data: list[ClientData]) -> ClientData:
    return replace(
        data[0],
        client=POOL,
        pixels=joined([client.pixels for client in data]),
        labels=torch.cat([client.labels for client in data]),
        held_out_pixels=joined([client.held_out_pixels for client in data]),
        held_out_labels=torch.cat([client.held_out_labels for client in data]),
    )


class UnsharedModels(nn.Module):
    """Result of a training in which no client shares its model: the engine fills it for the evaluator, at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.names: tuple[str, ...] = ()
        self.models = nn.ModuleList()

    def fill(self, models: Mapping[str, nn.Module]) -> None:
        """Sets the clients' models, by client."""
        self.names, self.models = tuple(models), nn.ModuleList(models.values())

    def of(self, client: str) -> nn.Module:
        """The model of this client."""
        return self.models[self.names.index(client)]
