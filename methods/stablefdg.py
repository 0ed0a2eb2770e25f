"""StableFDG: clients share styles so that all may train on all (Park et al., "StableFDG", NeurIPS 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.moments import DASSL, PAPER_EPS
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.ask import Answers, Ask, Server
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.upload import Wanted

from . import _wanted
from ._federation import load_average, model_state, shared_state
from ._stable_client import StableFDGClient
from ._stable_settings import StableSettings


@dataclass(frozen=True)
class StableFDG(StableSettings):
    """Styles of other clients shift a client's features; its fields are those of `StableSettings`."""

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        model = self.model(federation, rng)
        layer, rule = self.style_layer, DASSL if self.code_compat else PAPER_EPS
        style = _wanted.style(model.backbone.channels[layer], layer, rule.name, variances=True)
        for round in range(self.rounds):
            clients = federation.sample(self.participants, rng)
            state = shared_state(model, SERVER, round, self)
            message: dict[str, Message]
            if self.shares_styles and len(clients) > 1:
                asked = federation.clients if self.code_compat else clients
                styles = styles_in((yield Ask("style", {client: [state] for client in asked}, wanted=[style])))
                peers = self._peers(clients, styles, rng)
                message = {client: [styles[other] for other in others] for client, others in peers}
            else:
                message = {client: [state] for client in clients}
            states = model_state((yield Ask("fit", message, reduce="mean", wanted=[Wanted(state)])))
            load_average(model, list(states.values()))
        return model

    def _peers(
        self, clients: Sequence[str], styles: Mapping[str, StyleStatistics], rng: torch.Generator
    ) -> list[tuple[str, list[str]]]:
        """By client, whose styles it is sent."""
        received = min(self.received, len(clients) - 1)
        if self.sharing == "random":
            orders = derangements(len(clients), received, rng)
            return [(client, [clients[order[i]] for order in orders]) for i, client in enumerate(clients)]
        vectors = torch.stack([styles[client].vector() for client in clients])
        far = torch.cdist(vectors, vectors).fill_diagonal_(-1).argsort(dim=1, descending=True)[:, :received].tolist()
        return [(client, [clients[j] for j in row]) for client, row in zip(clients, far, strict=True)]

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "StableFDGClient":
        return StableFDGClient(self, federation, data, rng)


def styles_in(answers: Answers) -> dict[str, StyleStatistics]:
    """By client, the style in its answer."""
    return {
        client: artifact
        for client, message in answers.items()
        for artifact in message
        if isinstance(artifact, StyleStatistics)
    }


def derangements(n: int, count: int, rng: torch.Generator) -> list[list[int]]:
    """`count` permutations of range(n) without fixed points, no two of which agree anywhere.

    One is uniform over all derangements. More are rotations of one random circle by different steps.

    Raises:
        ValueError: n < 2, or count >= n, where there are none.
    """
    if n < 2 or not 0 <= count < n:
        raise ValueError(f"want n >= 2 and at most n - 1 derangements, got n={n}, count={count}")
    if count == 1:
        while True:
            order = torch.randperm(n, generator=rng)
            if not bool((order == torch.arange(n)).any()):
                return [order.tolist()]
    circle = torch.randperm(n, generator=rng)
    place = circle.argsort()
    steps = (torch.randperm(n - 1, generator=rng)[:count] + 1).tolist()
    return [circle[(place + step) % n].tolist() for step in steps]
