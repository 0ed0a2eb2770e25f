"""Trainings without a federation: centralised, on the images of all clients; or local, of each client alone."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import joined
from fdgpriv.federation.disclosure import FederatedMethod

POOL = "pool"  # the name of the one participant that holds all images


def participants_of(method: FederatedMethod, data: Mapping[str, ClientData]) -> Mapping[str, ClientData]:
    """By participant, its training data: each client's, or all images at one participant if the method `pools_images`."""
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
    """The clients' models of a training in which none is shared; the engine sets them at the end, for the evaluator."""

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
