"""Federations whose server keeps a hypernetwork: what pFedHN and hFedF share, which is all but the server's weighing.

A client is sent the model that the hypernetwork makes of its embedding, trains it, and answers with the pseudo-gradient
(sent minus trained); the server pulls that back through the hypernetwork that made the model, and takes a step against it.

The model sent in round r is the one after r steps of the server; the final models are those after `rounds` steps.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.ask import Answers, Ask, Server
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import Wanted
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt

from ._client_network import ClientNetwork
from ._federation import SCHEDULES, FederatedSGD, Schedule
from ._hyper_client import HyperClient
from ._hypernetwork import Hypernetwork, Init, Pullback
from ._moving_average import MovingAverage

Optimizer = torch.optim.Optimizer
Settling = Generator[Ask, Answers, None]
# Presets for small images and few rounds, alike in all methods whose server keeps a hypernetwork
_LOCAL: Mapping[str, Any] = {"local_epochs": 1, "batch_size": 16, "lr": 0.05}
QUICK: Mapping[str, Any] = {**_LOCAL, "rounds": 2, "server_lr": 2e-3, "server_schedule": "cosine"}
DEFAULT: Mapping[str, Any] = {**_LOCAL, "rounds": 48, "server_lr": 1e-3, "server_schedule": "cosine"}
OptimizerName = Literal["sgd", "sgd_momentum", "adam"]
OPTIMIZERS: dict[OptimizerName, Callable[[Any, float, float, float], Optimizer]] = {
    "sgd": lambda given, lr, momentum, decay: torch.optim.SGD(given, lr, weight_decay=decay),
    "sgd_momentum": lambda given, lr, momentum, decay: torch.optim.SGD(given, lr, momentum, weight_decay=decay),
    "adam": lambda given, lr, momentum, decay: torch.optim.Adam(given, lr, weight_decay=decay, fused=True),
}


class PersonalModels(nn.Module):
    """What a federation ends with: a model for each client, and one for everyone else, with which it classifies.

    Args:
        common: The model of the mean embedding, for images of no client.
        own: By client, its model.
        embeddings: (N, e), which never left the server.
    """

    embeddings: Tensor

    def __init__(self, common: nn.Module, own: Mapping[str, nn.Module], embeddings: Tensor) -> None:
        super().__init__()
        self.common = common
        self.names = tuple(own)
        self.own = nn.ModuleList(own.values())
        self.register_buffer("embeddings", embeddings.clone())

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W) in [0, 1]."""
        logits: Tensor = self.common(images)
        return logits

    def of(self, client: str) -> nn.Module:
        """This client's model."""
        return self.own[self.names.index(client)]


@dataclass(frozen=True)
class HyperFederation(FederatedSGD):
    """The hyperparameters of a hypernetwork and of its step.

    Attributes:
        local_steps: Mini-batches a round, each drawn afresh; none for `local_epochs` passes.
        client_optimizer: sgd (momentum 0), sgd_momentum, or adam.
        embedding_dim: e; none for 1 + N // 4.
        hidden, depth, slope, init: Of the hypernetwork (`_hypernetwork.Hypernetwork`).
        server_optimizer, server_lr, server_momentum, server_weight_decay: Of its step.
        server_schedule: Of the server's learning rate over the rounds: constant, cosine, or step20, as of the clients'. The
            papers have a constant rate. With it the models of the last rounds differ widely from one round to the next.
        clip: Largest norm of a client's gradient and of the server's.
    """

    personal: ClassVar[bool] = True
    elementwise_optimizer: ClassVar[bool] = False  # a client's gradient is clipped as a whole
    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="domains:1", image_size=32)

    participants: PositiveInt | None = None
    local_epochs: PositiveInt = 2
    batch_size: PositiveInt = 64
    schedule: Schedule = "constant"
    buffers: Literal["share"] = "share"
    local_steps: PositiveInt | None = None
    client_optimizer: OptimizerName = "sgd_momentum"
    embedding_dim: PositiveInt | None = None
    hidden: PositiveInt = 50
    depth: PositiveInt = 3
    slope: NonNegativeFloat = 0.01
    init: Init = "client"
    server_optimizer: OptimizerName = "adam"
    server_lr: PositiveFloat = 1e-3
    server_momentum: NonNegativeFloat = 0.9
    server_weight_decay: NonNegativeFloat = 1e-5
    server_schedule: Schedule = "constant"
    clip: PositiveFloat = 50.0

    def new_optimizer(self, model: nn.Module, round: int) -> Optimizer:
        build = OPTIMIZERS[self.client_optimizer]
        optimizer = build(model.parameters(), self.lr_at(round), self.momentum, self.weight_decay)

        def clip(*_: Any) -> None:
            nn.utils.clip_grad_norm_(model.parameters(), self.clip)

        optimizer.register_step_pre_hook(clip)
        return optimizer

    def server_lr_at(self, round: int) -> float:
        """The server's learning rate of this round."""
        return self.server_lr * SCHEDULES[self.server_schedule](round, self.rounds)

    def passes(self, n: int, rng: torch.Generator) -> Iterator[Tensor]:
        if self.local_steps is None:
            yield from super().passes(n, rng)
            return
        for _ in range(self.local_steps):
            yield torch.randperm(n, generator=rng)[: self.batch_size]

    def model(self, federation: Federation, rng: torch.Generator) -> ClientNetwork:
        return ClientNetwork(federation.classes, federation.image_size, rng)

    def model_of(self, model: nn.Module, client: str) -> nn.Module:
        assert isinstance(model, PersonalModels)
        return model.of(client)

    def disclosure(self) -> Disclosure:
        often = {ModelState.kind: self.rounds, ModelUpdate.kind: self.rounds}
        return replace(super().disclosure(), otherwise=0, often=often, sent_as={ModelState.kind: "client_model"})

    def hypernetwork(self, federation: Federation, rng: torch.Generator) -> Hypernetwork:
        """The server's network as it starts."""
        clients = len(federation.clients)
        e = self.embedding_dim or 1 + clients // 4
        network = self.model(federation, rng)
        made = Hypernetwork(clients, e, self.hidden, self.depth, self.slope, network, self.init, rng)
        return made.to(federation.device)

    def embed(self, hypernetwork: Hypernetwork, federation: Federation, rng: torch.Generator) -> Settling:
        """Settle the embeddings before the first round; may ask the clients. Here they stay as drawn, to be learned."""
        yield from ()

    def weigh(self, back: Pullback) -> tuple[Tensor, Tensor]:
        """The weights (M,) of the clients' gradients, of theta and of nu: here equal."""
        equal = back.updates.new_full((len(back.rows),), 1 / len(back.rows))
        return equal, equal

    def moving_average(self, hypernetwork: Hypernetwork) -> MovingAverage:
        """What follows the hypernetwork, here nothing."""
        return MovingAverage(hypernetwork, "off", 1.0, 0, True)

    def after_step(self, hypernetwork: Hypernetwork, rng: torch.Generator) -> None:
        """What else the server does to it after its step: here nothing."""

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        hypernetwork = self.hypernetwork(federation, rng)
        yield from self.embed(hypernetwork, federation, rng)
        average = self.moving_average(hypernetwork)
        trained = [parameter for parameter in hypernetwork.parameters() if parameter.requires_grad]
        build = OPTIMIZERS[self.server_optimizer]
        optimizer = build(trained, self.server_lr, self.server_momentum, self.server_weight_decay)
        for round in range(self.rounds):
            clients = federation.sample(self.participants, rng)
            rows = torch.tensor([federation.clients.index(client) for client in clients])
            served = average.served
            states = served.states(served.embeddings[rows])
            wanted = [Wanted(ModelUpdate(client=SERVER, round=round, state=states[0]))]
            answers = yield Ask("fit", _messages(clients, states, round), wanted=wanted)
            updates = torch.stack([_update(hypernetwork, answers[client]) for client in clients])
            back = served.pullback(rows, updates.to(federation.device))
            hypernetwork.accept(back, *self.weigh(back))
            nn.utils.clip_grad_norm_(trained, self.clip)
            for group in optimizer.param_groups:
                group["lr"] = self.server_lr_at(round)
            optimizer.step()
            self.after_step(hypernetwork, rng)
            average.follow(round)
        if average.final is not average.served:  # clients have never been sent what it makes
            states = average.final.states(average.final.embeddings)
            yield Ask("use", _messages(federation.clients, states, self.rounds - 1), wanted=())
        return self._models(average.final, federation, rng)

    def _models(self, hypernetwork: Hypernetwork, federation: Federation, rng: torch.Generator) -> PersonalModels:
        nu = hypernetwork.embeddings.detach()
        states = hypernetwork.states(torch.cat([nu.mean(0, keepdim=True), nu]))
        networks: list[nn.Module] = []
        for state in states:
            network = self.model(federation, rng)
            network.load_state_dict(state)
            networks.append(network)
        return PersonalModels(networks[0], dict(zip(federation.clients, networks[1:], strict=True)), nu)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> HyperClient:
        return HyperClient(self, federation, data, rng)


def _messages(clients: Sequence[str], states: Sequence[dict[str, Tensor]], round: int) -> dict[str, Message]:
    """By client, the model that was made for it."""
    return {
        client: [ModelState(client=SERVER, round=round, state=state)]
        for client, state in zip(clients, states, strict=True)
    }


def _update(hypernetwork: Hypernetwork, message: Message) -> Tensor:
    (update,) = (artifact for artifact in message if isinstance(artifact, ModelUpdate))
    return hypernetwork.flat(update.state)
