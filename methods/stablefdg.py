"""StableFDG: clients share styles and train on features shifted to other clients' styles (Park et al., NeurIPS 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers, Request, Server
from fdgpriv.federation.upload import ExpectedArtifact

from . import _expected_answers
from ._federation import load_average, model_state, shared_state
from ._stable_client import StableFDGClient
from ._stable_settings import StableSettings


@dataclass(frozen=True)
class StableFDG(StableSettings):
    """Server of StableFDG; the hyperparameters are those of `StableSettings`."""

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        model = self.model(federation, rng)
        layer = model.backbone.stage(self.style_layer)
        style = _expected_answers.style(model.backbone.channels[layer], layer, self.rule.name, variances=True)
        styles: dict[str, StyleStatistics] = {}
        for round in federation.rounds(self.rounds, model=model, styles=styles):
            clients = federation.sample(self.participants, rng)
            state = shared_state(model, SERVER, round, self)
            expected = [ExpectedArtifact(state), *self.expected_count()]
            message: dict[str, Message]
            if self.shares_styles and len(clients) > 1:
                everyone = federation.clients if self.code_compat else clients
                asked = [client for client in everyone if self.resend_styles or client not in styles]
                if asked:
                    answers = yield Request("style", {client: [state] for client in asked}, wanted=[style])
                    styles.update(styles_in(answers))
                message = {
                    client: [*([] if client in asked else [state]), *(styles[other] for other in others)]
                    for client, others in self._peers(clients, styles, rng)
                }
            else:
                message = {client: [state] for client in clients}
            fit = Request("fit", message, reduce="mean", number=round, wanted=expected)  # a message may be empty
            answers = yield fit
            load_average(model, list(model_state(answers).values()), self.weights_in(answers))
        return model

    def _peers(
        self, clients: Sequence[str], styles: Mapping[str, StyleStatistics], rng: torch.Generator
    ) -> list[tuple[str, list[str]]]:
        """By client, the clients whose styles it receives."""
        sharing = [client for client in clients if client in styles]
        if len(sharing) < len(clients):  # a defense withheld some
            others = {client: [other for other in sharing if other != client] for client in clients}
            return [(client, _sample(others[client], self.received, rng)) for client in clients]
        styles_per_client = min(self.received, len(clients) - 1)
        if self.sharing == "random":
            orders = derangements(len(clients), styles_per_client, rng)
            return [(client, [clients[order[i]] for order in orders]) for i, client in enumerate(clients)]
        vectors = torch.stack([styles[client].vector() for client in clients])
        farthest = (
            torch.cdist(vectors, vectors)
            .fill_diagonal_(-1)
            .argsort(dim=1, descending=True)[:, :styles_per_client]
            .tolist()
        )
        return [(client, [clients[j] for j in row]) for client, row in zip(clients, farthest, strict=True)]

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


def _sample(names: Sequence[str], count: int, rng: torch.Generator) -> list[str]:
    """At most `count` of these names, drawn without replacement."""
    return [names[i] for i in torch.randperm(len(names), generator=rng)[:count].tolist()]


def derangements(n: int, count: int, rng: torch.Generator) -> list[list[int]]:
    """`count` permutations of range(n) without fixed points, pairwise different at every position.

    A single one is uniform over all derangements. Several are rotations of one random cycle by different steps.

    Raises:
        ValueError: n < 2, or count >= n, where none exist.
    """
    if n < 2 or not 0 <= count < n:
        raise ValueError(f"want n >= 2 and at most n - 1 derangements, got n={n}, count={count}")
    if count == 1:
        while True:
            order = torch.randperm(n, generator=rng)
            if not bool((order == torch.arange(n)).any()):
                return [order.tolist()]
    cycle = torch.randperm(n, generator=rng)
    position = cycle.argsort()
    steps = (torch.randperm(n - 1, generator=rng)[:count] + 1).tolist()
    return [cycle[(position + step) % n].tolist() for step in steps]
