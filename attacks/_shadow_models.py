"""Shadow models: models that an adversary trains itself, to compare with those of clients or of the federation.

Shadow models of a client are trained from the model that it received, jointly where that is faster. Shadow federations are
trained from the start with the run's method, on public images only, never on a membership candidate.
Reference: Carlini et al., "Membership inference attacks from first principles", S&P 2022.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import Domain
from fdgpriv.models.cpu_io import device_of
from fdgpriv.simulation.shared_model import SharedModelSimulator
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.file_memory import in_file
from fdgpriv.utils.seeds import generator

_SMALL_CLIENT = 8  # images; with fewer, a step is mostly overhead, which joint training shares (tests/bench)
_MAX_PUBLIC_SHARE = 0.5  # of a domain's public images, so that the next federation can hold others, for RMIA
_MAX_RELATIVE_SIZE = 0.2  # to the run's number of images, so that sixteen federations cost about three trainings
_MIN_IMAGES = 4  # of a domain


class Shadows:
    """Trains shadow models on public images, and returns the models that a receiver would observe.

    Args:
        simulator: Simulates the artifacts of training.
        domains: The public images of each domain.
        rng: Draws the shadow models' images and seeds their trainings.
    """

    def __init__(self, simulator: TrainingSimulator, domains: Sequence[Domain], rng: torch.Generator) -> None:
        self.simulator, self.rng = simulator, rng
        self.images = in_file(torch.cat([domain.images for domain in domains]))
        self.labels = torch.cat([domain.labels for domain in domains])
        self.domains = torch.cat([torch.full((len(domain),), d) for d, domain in enumerate(domains)])
        self.smallest_domain = min(len(domain) for domain in domains)
        self.n_domains = len(domains)

    def with_rng(self, rng: torch.Generator) -> "Shadows":
        """These shadow models with another random generator."""
        shadows = copy(self)
        shadows.rng = rng
        return shadows

    def draw(self, size: int, turn: int) -> Tensor:
        """Indices of the public images of one shadow model: `size` of one domain, domains taking turns.

        Where a domain has fewer than `size` images, they come from all domains, and are at most half of all.
        """
        index = (self.domains == turn % self.n_domains).nonzero().flatten()
        if size > self.smallest_domain:
            index, size = torch.arange(len(self.labels)), min(size, max(1, len(self.labels) // 2))
        return index[torch.randperm(len(index), generator=self.rng)[:size]]

    def trained_on(self, indices: Sequence[Tensor], received_model: ModelState) -> list[ModelState]:
        """The observed models of shadow clients that hold these public images and received this model."""
        return self.observed_models(
            [ClientImages(self.images[index], self.labels[index], received_model) for index in indices]
        )

    def trained_on_halves(
        self, images: Tensor, labels: Tensor, size: int, received_model: ModelState, count: int
    ) -> tuple[list[ModelState], Tensor]:
        """Shadow models trained on random halves of the given images, at most `size`, filled up with public images.

        Args:
            images: (N, 3, H, W).
            labels: (N,).
            size: Number of images of each shadow model.
            received_model: The model to train from.
            count: Number S of shadow models.

        Returns: the models, and whether each was trained on each image (S, N).
        """
        n_given = min(size, max(1, len(images) // 2))
        order = torch.randperm(len(images), generator=self.rng)
        saw = torch.zeros(count, len(images), dtype=torch.bool)
        clients = []
        for turn in range(count):
            if n_given > 1:
                order = torch.randperm(len(images), generator=self.rng)
            given_index, public_index = order.roll(-turn)[:n_given], self.draw(size, turn)[: size - n_given]
            saw[turn, given_index] = True
            client_images = (
                torch.cat([images[given_index], self.images[public_index]]),
                torch.cat([labels[given_index], self.labels[public_index]]),
            )
            clients.append(ClientImages(*client_images, received_model))
        return self.observed_models(clients), saw

    def observed_models(self, clients: Sequence[ClientImages]) -> list[ModelState]:
        """The models that clients with these images train, as far as their defended artifacts reveal them."""
        models = []
        for client, state in zip(clients, train_shadows(self.simulator, clients, self.rng), strict=True):
            assert client.received_model is not None
            draft = self.simulator.form(state, client.received_model)
            artifact = self.simulator.defense.shared(draft, self.rng, client.received_model)
            models.append(self.simulator.after(artifact, client.received_model))
        return models


def train_shadows(
    simulator: TrainingSimulator, clients: Sequence[ClientImages], rng: torch.Generator
) -> list[ModelState]:
    """The models that clients with these images would train from the model that all of them received.

    Args:
        simulator: Simulates the artifacts of training.
        clients: The images of each shadow model; all equally many, all with the same received model.
        rng: Seeds an independent stream for each shadow model.

    Raises:
        ValueError: Shadow models have different numbers of images.
    """
    seeds = torch.randint(2**62, (len(clients),), generator=rng).tolist()
    sizes = {len(client.labels) for client in clients}
    if len(sizes) != 1:
        raise ValueError(f"want shadows that hold equally many images, got {sorted(sizes)}")
    is_faster_jointly = max(sizes) < _SMALL_CLIENT or simulator.federation.device.type != "cpu"
    train = train_jointly if simulator.plain.elementwise_optimizer and is_faster_jointly else train_separately
    return train(simulator, clients, seeds)


def train_separately(
    simulator: TrainingSimulator, clients: Sequence[ClientImages], seeds: Sequence[int]
) -> list[ModelState]:
    """As `train_shadows`, each model by the method's own training loop."""
    return [
        simulator.trained(ClientSample.all_of(client), generator(seed))
        for client, seed in zip(clients, seeds, strict=True)
    ]


def train_jointly(
    simulator: TrainingSimulator, clients: Sequence[ClientImages], seeds: Sequence[int]
) -> list[ModelState]:
    """As `train_shadows`, all models in one network of stacked parameters: equal up to rounding.

    Only for elementwise optimisers (`PlainTraining.elementwise_optimizer`). BatchNorm uses each shadow model's own
    batch statistics, and updates its own running statistics.
    """
    network = simulator.network()
    if device_of(network).type != "cpu":  # there vmap knows no channels-last BatchNorm
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    assert clients[0].received_model is not None
    clients[0].received_model.load_into(network)
    simulator.plain.ready(network, min(len(client.labels) for client in clients))
    count = len(clients)
    parameters = {name: nn.Parameter(_repeated(tensor, count)) for name, tensor in network.named_parameters()}
    buffers = {name: _repeated(tensor, count) for name, tensor in network.named_buffers()}
    optimizer = simulator.plain.new_optimizer(nn.ParameterDict(_dotless(parameters)), simulator.round)

    def loss(values: Mapping[str, Tensor], state: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(network, (dict(values), dict(state)), (images,)), labels)

    gradients = vmap(grad(loss), randomness="different")
    batches = [
        simulator.batches(ClientSample.all_of(client), generator(seed))
        for client, seed in zip(clients, seeds, strict=True)
    ]
    for step in zip(*batches, strict=True):
        images, labels = (torch.stack(tensors) for tensors in zip(*step, strict=True))
        values = {name: parameter.detach() for name, parameter in parameters.items()}
        for name, gradient in gradients(values, buffers, images, labels).items():
            parameters[name].grad = gradient
        optimizer.step()
    states = {name: tensor.detach().cpu() for name, tensor in (*parameters.items(), *buffers.items())}
    names = [name for name in network.state_dict() if name in states]
    return [
        ModelState(client=SERVER, round=simulator.round, state={name: states[name][i].clone() for name in names})
        for i in range(count)
    ]


def _repeated(tensor: Tensor, count: int) -> Tensor:
    return tensor.detach().expand(count, *tensor.shape).clone()


def _dotless(parameters: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """The same parameters under names without dots, as `nn.ParameterDict` requires."""
    return {name.replace(".", "/"): parameter for name, parameter in parameters.items()}


@dataclass(frozen=True, eq=False)
class ShadowFederation:
    """The run's method, trained from the start on an adversary's public images only.

    Attributes:
        received_model: The last model that its server sent; for a personalised method, the last model of each client.
        saw: (M,) whether its clients held each public image.
    """

    received_model: list[ModelState]
    saw: Tensor


def shadow_federations(adversary: Adversary, count: int) -> list[ShadowFederation]:
    """`count` shadow federations, each trained once and cached for all attacks."""
    images, labels = adversary.public_images
    simulator = adversary.simulator(SharedModelSimulator)

    def train(turn: int) -> ShadowFederation:
        parts = list(_public_parts(adversary, len(simulator.federation.clients), turn))
        saw = torch.zeros(len(images), dtype=torch.bool)
        saw[torch.cat(parts)] = True
        clients = [(images[index], labels[index]) for index in parts]
        return ShadowFederation(simulator.trained_from_start(clients, generator(adversary.seed, 18, turn)), saw)

    return [adversary.cache.get((shadow_federations, turn), partial(train, turn)) for turn in range(count)]


def _public_parts(adversary: Adversary, n_clients: int, turn: int) -> Iterator[Tensor]:
    """Indices of the public images of each client of a shadow federation.

    Its clients are about as large as the run's, each of one domain, at least two in all. Federations 2i and 2i + 1 have
    no image in common, except where a domain has few.

    Args:
        adversary: The adversary with its public images.
        n_clients: Number of clients of the run.
        turn: Number of the shadow federation.
    """
    domains = adversary.domains
    pair, is_second = divmod(turn, 2)
    rng = generator(adversary.seed, 19, pair)
    held_share = min(
        _MAX_PUBLIC_SHARE, _MAX_RELATIVE_SIZE * n_clients * adversary.typical / sum(len(domain) for domain in domains)
    )
    start = 0
    for domain in domains:
        order = start + torch.randperm(len(domain), generator=rng)
        size = min(len(domain), max(_MIN_IMAGES, int(held_share * len(domain))))
        n_parts = max(round(size / adversary.typical), 2 if len(domains) == 1 else 1)
        yield from (order[-size:] if is_second else order[:size]).tensor_split(max(1, min(n_parts, size // 2)))
        start += len(domain)
