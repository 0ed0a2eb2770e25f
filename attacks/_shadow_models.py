"""Shadow models: models that an adversary trains itself, to compare with those of clients or of whole federations.

Shadow models of a client are trained from the model it received, jointly where that is faster. Shadow federations are
trained from the start with the run's own method, on public images only, never on a membership candidate.
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
from fdgpriv.simulation.simulator import ClientImages
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.file_memory import in_file
from fdgpriv.utils.seeds import generator

_SMALL = 8  # images; with fewer a step is mostly overhead, which joint training shares (tests/bench)
_HELD = 0.5  # largest share of a domain's public images; the next federation holds the others, for RMIA
_COST = 0.2  # largest share of the run's number of images, so that sixteen federations cost about three trainings
_LEAST = 4  # images of a domain


class Shadows:
    """Trains shadow models on public images, and returns what a receiver would observe of them.

    Args:
        simulator: Of the artifacts.
        domains: The public images.
        rng: Of the shadow models' images and trainings.
    """

    def __init__(self, simulator: TrainingSimulator, domains: Sequence[Domain], rng: torch.Generator) -> None:
        self.simulator, self.rng = simulator, rng
        self.images = in_file(torch.cat([domain.images for domain in domains]))
        self.labels = torch.cat([domain.labels for domain in domains])
        self.domains = torch.cat([torch.full((len(domain),), d) for d, domain in enumerate(domains)])
        self.least = min(len(domain) for domain in domains)
        self.count = len(domains)

    def drawn_by(self, rng: torch.Generator) -> "Shadows":
        """The same with other draws."""
        other = copy(self)
        other.rng = rng
        return other

    def draw(self, size: int, turn: int) -> Tensor:
        """Indices of the public images of one shadow model: `size` of one domain, domains taking turns.

        Where a domain has fewer than `size` images, they come from all domains, and are at most half of all.
        """
        own = (self.domains == turn % self.count).nonzero().flatten()
        if size > self.least:
            own, size = torch.arange(len(self.labels)), min(size, max(1, len(self.labels) // 2))
        return own[torch.randperm(len(own), generator=self.rng)[:size]]

    def of(self, drawn: Sequence[Tensor], received_model: ModelState) -> list[ModelState]:
        """The observed models of shadow clients that hold these public images and received this model, as `known`."""
        return self.known([ClientImages(self.images[index], self.labels[index], received_model) for index in drawn])

    def with_some_of(
        self, images: Tensor, labels: Tensor, size: int, received_model: ModelState, count: int
    ) -> tuple[list[ModelState], Tensor]:
        """Shadow models trained on random halves of the given images, at most `size`, filled up with public images.

        Args:
            images: (N, 3, H, W).
            labels: (N,).
            size: Number of images of each shadow model.
            received_model: The model to train from.
            count: S.

        Returns: the models, and which was trained on which image (S, N).
        """
        share = min(size, max(1, len(images) // 2))
        order = torch.randperm(len(images), generator=self.rng)
        saw = torch.zeros(count, len(images), dtype=torch.bool)
        holdings = []
        for turn in range(count):
            if share > 1:
                order = torch.randperm(len(images), generator=self.rng)
            mine, rest = order.roll(-turn)[:share], self.draw(size, turn)[: size - share]
            saw[turn, mine] = True
            given = torch.cat([images[mine], self.images[rest]]), torch.cat([labels[mine], self.labels[rest]])
            holdings.append(ClientImages(*given, received_model))
        return self.known(holdings), saw

    def known(self, holdings: Sequence[ClientImages]) -> list[ModelState]:
        """The models that clients with these images train, as far as their defended artifacts reveal them."""
        found = []
        for holding, state in zip(holdings, train_shadows(self.simulator, holdings, self.rng), strict=True):
            assert holding.received_model is not None
            form = self.simulator.form(state, holding.received_model)
            made = self.simulator.defense.shared(form, self.rng, holding.received_model)
            found.append(self.simulator.after(made, holding.received_model))
        return found


def train_shadows(
    simulator: TrainingSimulator, holdings: Sequence[ClientImages], rng: torch.Generator
) -> list[ModelState]:
    """The models that clients with these images would train from the model that all of them received.

    Args:
        simulator: Of the artifacts.
        holdings: One for each shadow model; all of one size, all with the same received model.
        rng: Seeds an independent stream for each shadow model.

    Raises:
        ValueError: They hold different numbers of images.
    """
    seeds = torch.randint(2**62, (len(holdings),), generator=rng).tolist()
    sizes = {len(holding.labels) for holding in holdings}
    if len(sizes) != 1:
        raise ValueError(f"want shadows that hold equally many images, got {sorted(sizes)}")
    gains = max(sizes) < _SMALL or simulator.federation.device.type != "cpu"
    train = train_together if simulator.plain.elementwise_optimizer and gains else train_one_by_one
    return train(simulator, holdings, seeds)


def train_one_by_one(
    simulator: TrainingSimulator, holdings: Sequence[ClientImages], seeds: Sequence[int]
) -> list[ModelState]:
    """As `train_shadows`, each by the method's own training loop."""
    return [
        simulator.trained(holding, torch.arange(len(holding.labels)), generator(seed))
        for holding, seed in zip(holdings, seeds, strict=True)
    ]


def train_together(
    simulator: TrainingSimulator, holdings: Sequence[ClientImages], seeds: Sequence[int]
) -> list[ModelState]:
    """As `train_shadows`, all in one network of stacked parameters: equal up to rounding.

    Only for elementwise optimisers (`PlainTraining.elementwise_optimizer`). BatchNorm uses each shadow model's own
    batch statistics, and updates its own running ones.
    """
    network = simulator.network()
    if device_of(network).type != "cpu":  # there vmap knows no channels-last BatchNorm
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    assert holdings[0].received_model is not None
    holdings[0].received_model.load_into(network)
    simulator.plain.ready(network, min(len(holding.labels) for holding in holdings))
    count = len(holdings)
    parameters = {name: nn.Parameter(_repeated(tensor, count)) for name, tensor in network.named_parameters()}
    buffers = {name: _repeated(tensor, count) for name, tensor in network.named_buffers()}
    optimizer = simulator.plain.new_optimizer(nn.ParameterDict(_dotless(parameters)), simulator.round)

    def loss(values: Mapping[str, Tensor], state: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(network, (dict(values), dict(state)), (images,)), labels)

    gradients = vmap(grad(loss), randomness="different")
    drawn = [
        simulator.batches(holding, torch.arange(len(holding.labels)), generator(seed))
        for holding, seed in zip(holdings, seeds, strict=True)
    ]
    for step in zip(*drawn, strict=True):
        images, labels = (torch.stack(parts) for parts in zip(*step, strict=True))
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
        received_model: The last model that its server sent; of a personalised method, each client's.
        saw: (M,) which of all public images its clients held.
    """

    received_model: list[ModelState]
    saw: Tensor


def shadow_federations(adversary: Adversary, count: int) -> list[ShadowFederation]:
    """`count` shadow federations; each is trained once and cached for all attacks."""
    images, labels = adversary.public_images
    simulator = adversary.simulator(SharedModelSimulator)

    def made(turn: int) -> ShadowFederation:
        parts = list(_parts(adversary, len(simulator.federation.clients), turn))
        saw = torch.zeros(len(images), dtype=torch.bool)
        saw[torch.cat(parts)] = True
        parties = [(images[index], labels[index]) for index in parts]
        return ShadowFederation(simulator.trained_from_start(parties, generator(adversary.seed, 18, turn)), saw)

    return [adversary.cache.get((shadow_federations, turn), partial(made, turn)) for turn in range(count)]


def _parts(adversary: Adversary, clients: int, turn: int) -> Iterator[Tensor]:
    """Indices of the public images of each client of a shadow federation.

    Its clients are about as large as the run's, each of one domain, at least two in all. Federations 2i and 2i + 1 have
    no image in common, except where a domain has few.

    Args:
        adversary: With public images.
        clients: Number of clients of the run.
        turn: Number of the shadow federation.
    """
    domains = adversary.domains
    pair, second = divmod(turn, 2)
    rng = generator(adversary.seed, 19, pair)
    share = min(_HELD, _COST * clients * adversary.typical / sum(len(domain) for domain in domains))
    start = 0
    for domain in domains:
        order = start + torch.randperm(len(domain), generator=rng)
        size = min(len(domain), max(_LEAST, int(share * len(domain))))
        parts = max(round(size / adversary.typical), 2 if len(domains) == 1 else 1)
        yield from (order[-size:] if second else order[:size]).tensor_split(max(1, min(parts, size // 2)))
        start += len(domain)
