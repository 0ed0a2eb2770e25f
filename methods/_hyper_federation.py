"""Base of hypernetwork methods (pFedHN, hFedF): the server generates a personal model for each client.

A client trains the model generated from its embedding and shares the pseudo-gradient (sent minus trained). The server
backpropagates it through the hypernetwork that generated the model, and takes an optimiser step.

The model sent in round r is generated after r server steps; the final models after `rounds` steps.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers, Request, Server
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt

from ._client_network import ClientNetwork
from ._federation import SCHEDULES, LocalSGD, Schedule, drawn_batches
from ._hyper_client import HyperClient
from ._hypernetwork import Hypernetwork, Init, Pullback
from ._moving_average import MovingAverage

Optimizer = torch.optim.Optimizer
EmbeddingInit = Generator[Request, Answers, None]
# Presets for small images and few rounds, shared by all hypernetwork methods
_LOCAL: Mapping[str, Any] = {"local_epochs": 1, "batch_size": 16, "lr": 0.05}
QUICK: Mapping[str, Any] = {**_LOCAL, "rounds": 2, "server_lr": 2e-3, "server_schedule": "cosine"}
DEFAULT: Mapping[str, Any] = {**_LOCAL, "batch_size": 8, "rounds": 48, "server_lr": 1e-3, "server_schedule": "cosine"}
# Clients' training in the paper's setting. The paper names neither value; FedAvg reaches the paper's figures with both only
TRAINED: Mapping[str, Any] = {"client_optimizer": "adam", "image_changes": "crop_colour"}
OptimizerName = Literal["sgd", "sgd_momentum", "adam"]
OPTIMIZERS: dict[OptimizerName, Callable[[Any, float, float, float], Optimizer]] = {
    "sgd": lambda parameters, lr, momentum, decay: torch.optim.SGD(parameters, lr, weight_decay=decay),
    "sgd_momentum": lambda parameters, lr, momentum, decay: torch.optim.SGD(
        parameters, lr, momentum, weight_decay=decay
    ),
    "adam": lambda parameters, lr, momentum, decay: torch.optim.Adam(parameters, lr, weight_decay=decay, fused=True),
}


class PersonalModels(nn.Module):
    """Result of training: a model for each client, and a common model for other images, which `forward` uses.

    Args:
        common: Generated from the mean embedding.
        own: Models by client.
        embeddings: (N, e), never shared.
    """

    embeddings: Tensor

    def __init__(self, common: nn.Module, own: Mapping[str, nn.Module], embeddings: Tensor) -> None:
        super().__init__()
        self.common = common
        self.names = tuple(own)
        self.own = nn.ModuleList(own.values())
        self.register_buffer("embeddings", embeddings.clone())

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of the common model for images (B, 3, H, W) in [0, 1]."""
        logits: Tensor = self.common(images)
        return logits

    def of(self, client: str) -> nn.Module:
        """The model of this client."""
        return self.own[self.names.index(client)]


@dataclass(frozen=True)
class HyperFederation(LocalSGD):
    """Hyperparameters of the hypernetwork and its optimiser, and the server loop.

    Attributes:
        local_steps: Mini-batches per round, each drawn independently; none for `local_epochs` passes.
        client_optimizer: sgd (momentum 0), sgd_momentum, or adam.
        embedding_dim: e; none for 1 + N // 4.
        embedding_std: Standard deviation of random embeddings; 1 is torch's default. The more they differ, the more the
            clients' models differ.
        hidden, depth, slope, init: As in `_hypernetwork.Hypernetwork`.
        server_optimizer, server_lr, server_momentum, server_weight_decay: The server's optimiser and its settings.
        server_schedule: The server's learning rate over rounds: constant (as in the papers), or another one of `schedule`.
            With a constant rate the models of consecutive late rounds differ widely.
        clip: Largest gradient norm of clients and of the server.
    """

    personal: ClassVar[bool] = True
    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="domains:1", image_size=32)

    participants: PositiveInt | None = None
    local_epochs: PositiveInt = 2
    batch_size: PositiveInt = 64
    schedule: Schedule = "constant"
    buffers: Literal["share"] = "share"
    local_steps: PositiveInt | None = None
    client_optimizer: OptimizerName = "sgd_momentum"
    embedding_dim: PositiveInt | None = None
    embedding_std: PositiveFloat = 1.0
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

    @property
    def coupling(self) -> str | None:
        return None

    @property
    def elementwise_optimizer(self) -> bool:
        return False  # a client's gradient is clipped as a whole

    @property
    def own_network(self) -> bool:
        return True

    def server_lr_at(self, round: int) -> float:
        """The server's learning rate in this round."""
        return self.server_lr * SCHEDULES[self.server_schedule](round, self.rounds)

    def passes(self, n: int, rng: torch.Generator) -> Iterator[Tensor]:
        if self.local_steps is None:
            return super().passes(n, rng)
        return drawn_batches(n, self.batch_size, self.local_steps, rng)

    def model(self, federation: Federation, rng: torch.Generator) -> ClientNetwork:
        return ClientNetwork(federation.classes, federation.image_size, rng)

    def model_of(self, model: nn.Module, client: str) -> nn.Module:
        assert isinstance(model, PersonalModels)
        return model.of(client)

    def disclosure(self) -> Disclosure:
        often = {ModelState.kind: self.rounds, ModelUpdate.kind: self.rounds}
        sent_as, uploads = {ModelState.kind: "client_model"}, (ModelUpdate.kind,)
        return replace(
            super().disclosure(), otherwise=0, often=often, uploads=uploads, individual=uploads, sent_as=sent_as
        )

    def hypernetwork(self, federation: Federation, rng: torch.Generator) -> Hypernetwork:
        """The initial hypernetwork."""
        clients = len(federation.clients)
        e = self.embedding_dim or 1 + clients // 4
        network = self.model(federation, rng)
        generator = Hypernetwork(clients, e, self.hidden, self.depth, self.slope, network, self.init, rng)
        with torch.no_grad():
            generator.embeddings.mul_(self.embedding_std)
        return generator.to(federation.device)

    def embed(self, hypernetwork: Hypernetwork, federation: Federation, rng: torch.Generator) -> EmbeddingInit:
        """Sets the embeddings before the first round, possibly by asking clients; here they stay random and are learned."""
        yield from ()

    def client_weights(self, pullback: Pullback) -> tuple[Tensor, Tensor]:
        """Weights (M,) of the clients' gradients, for theta and for nu; here equal."""
        equal = pullback.updates.new_full((len(pullback.rows),), 1 / len(pullback.rows))
        return equal, equal

    def moving_average(self, hypernetwork: Hypernetwork) -> MovingAverage:
        """Moving average of the hypernetwork; here off."""
        return MovingAverage(hypernetwork, "off", 1.0, 0, True)

    def after_step(self, hypernetwork: Hypernetwork, rng: torch.Generator) -> None:
        """Hook after the server's step; here nothing."""

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        hypernetwork = self.hypernetwork(federation, rng)
        yield from self.embed(hypernetwork, federation, rng)
        average = self.moving_average(hypernetwork)
        trained = [parameter for parameter in hypernetwork.parameters() if parameter.requires_grad]
        build = OPTIMIZERS[self.server_optimizer]
        optimizer = build(trained, self.server_lr, self.server_momentum, self.server_weight_decay)
        checkpointed = {"hypernetwork": hypernetwork, "average": average, "optimizer": optimizer}
        for round in federation.rounds(self.rounds, **checkpointed):
            clients = federation.sample(self.participants, rng)
            rows = torch.tensor([federation.clients.index(client) for client in clients])
            current = average.current
            states = current.states(current.embeddings[rows])
            expected = [ExpectedArtifact(ModelUpdate(client=SERVER, round=round, state=states[0]))]
            answers = yield Request("fit", _messages(clients, states, round), wanted=expected)
            updates = torch.stack([_update(hypernetwork, answers[client]) for client in clients])
            pullback = current.pullback(rows, updates.to(federation.device))
            hypernetwork.set_gradients(pullback, *self.client_weights(pullback))
            nn.utils.clip_grad_norm_(trained, self.clip)
            for group in optimizer.param_groups:
                group["lr"] = self.server_lr_at(round)
            optimizer.step()
            self.after_step(hypernetwork, rng)
            average.update(round)
        if average.final is not average.current:  # the final models have not been sent yet
            states = average.final.states(average.final.embeddings)
            yield Request("use", _messages(federation.clients, states, self.rounds), wanted=())
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
    """Messages with each client's model."""
    return {
        client: [ModelState(client=SERVER, round=round, state=state)]
        for client, state in zip(clients, states, strict=True)
    }


def _update(hypernetwork: Hypernetwork, message: Message) -> Tensor:
    (update,) = (artifact for artifact in message if isinstance(artifact, ModelUpdate))
    return hypernetwork.to_vector(update.state)
