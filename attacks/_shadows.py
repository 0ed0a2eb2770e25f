"""Shadow models: many trainings from one model, as clients would have made them, all at once where that is faster.

Carlini et al., "Membership inference attacks from first principles", S&P 2022, train theirs one by one.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fdgpriv.artifact import SERVER, ModelState
from fdgpriv.federation import Domain, generator
from fdgpriv.subjects import Holding, TrainingCraft

_SMALL = 8  # images; with fewer a step is mostly overhead, which shadows trained together share (tests/bench)


class Shadows:
    """Makes shadows of public images, and knows of them what a receiver knows of a client.

    Args:
        craft: Of the artifacts.
        domains: The public images.
        rng: Of what shadows hold, and of their trainings.
    """

    def __init__(self, craft: TrainingCraft, domains: Sequence[Domain], rng: torch.Generator) -> None:
        self.craft, self.rng = craft, rng
        self.images = torch.cat([domain.images for domain in domains])
        self.labels = torch.cat([domain.labels for domain in domains])
        self.domains = torch.cat([torch.full((len(domain),), d) for d, domain in enumerate(domains)])
        self.least = min(len(domain) for domain in domains)
        self.count = len(domains)

    def draw(self, size: int, turn: int) -> Tensor:
        """Indices of the public images that a shadow holds: of one domain in turn, as a client's.

        Where a domain has fewer than `size` images, they are of all domains, and at most half of all.
        """
        own = (self.domains == turn % self.count).nonzero().flatten()
        if size > self.least:
            own, size = torch.arange(len(self.labels)), min(size, max(1, len(self.labels) // 2))
        return own[torch.randperm(len(own), generator=self.rng)[:size]]

    def of(self, drawn: Sequence[Tensor], sent: ModelState) -> list[ModelState]:
        """The models of shadows that hold these public images each and were sent this model, as `known`."""
        return self.known([Holding(self.images[index], self.labels[index], sent) for index in drawn])

    def with_some_of(
        self, images: Tensor, labels: Tensor, size: int, sent: ModelState, count: int
    ) -> tuple[list[ModelState], Tensor]:
        """Shadows of which each holds a random half of these images (N, 3, H, W), or as many as it may, among public ones.

        Returns: the models, and which saw which image (S, N).
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
            holdings.append(Holding(*given, sent))
        return self.known(holdings), saw

    def known(self, holdings: Sequence[Holding]) -> list[ModelState]:
        """What is known of the models that clients with these holdings train, once they passed the defense."""
        found = []
        for held, state in zip(holdings, train_shadows(self.craft, holdings, self.rng), strict=True):
            assert held.sent is not None
            made = self.craft.defense.protect(self.craft.form(state, held.sent), self.rng)
            found.append(self.craft.after(made, held.sent))
        return found


def train_shadows(craft: TrainingCraft, holdings: Sequence[Holding], rng: torch.Generator) -> list[ModelState]:
    """The models that clients with these holdings would have trained of the one model they were sent.

    Args:
        craft: Of the artifacts.
        holdings: One for each shadow; all of one size, all sent the same model.
        rng: Each shadow draws from a stream of its own.
    """
    seeds = torch.randint(2**62, (len(holdings),), generator=rng).tolist()
    sizes = {len(held.labels) for held in holdings}
    if len(sizes) != 1:
        raise ValueError(f"want shadows that hold equally many images, got {sorted(sizes)}")
    gains = max(sizes) < _SMALL or craft.federation.device.type != "cpu"
    train = train_together if craft.method.steps_alone and gains else train_one_by_one
    return train(craft, holdings, seeds)


def train_one_by_one(craft: TrainingCraft, holdings: Sequence[Holding], seeds: Sequence[int]) -> list[ModelState]:
    """As `train_shadows`, each by the method's own loop."""
    return [
        craft.trained(held, torch.arange(len(held.labels)), generator(seed))
        for held, seed in zip(holdings, seeds, strict=True)
    ]


def train_together(craft: TrainingCraft, holdings: Sequence[Holding], seeds: Sequence[int]) -> list[ModelState]:
    """As `train_shadows`, all in one network of stacked parameters: the same up to rounding.

    Only for optimisers that move each entry of a parameter by itself (`Method.steps_alone`). BatchNorm takes each
    shadow's own batch statistics, and updates its own running ones.
    """
    device = craft.federation.device
    network = craft.network()
    assert holdings[0].sent is not None
    holdings[0].sent.load_into(network)
    craft.method.ready(network, min(len(held.labels) for held in holdings))
    count = len(holdings)
    parameters = {name: nn.Parameter(_repeated(tensor, count)) for name, tensor in network.named_parameters()}
    buffers = {name: _repeated(tensor, count) for name, tensor in network.named_buffers()}
    optimizer = craft.method.new_optimizer(nn.ParameterDict(_dotless(parameters)), craft.round)

    def loss(values: Mapping[str, Tensor], state: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(network, (dict(values), dict(state)), (images,)), labels)

    gradients = vmap(grad(loss), randomness="different")
    drawn = [
        craft.batches(held, torch.arange(len(held.labels)), generator(seed))
        for held, seed in zip(holdings, seeds, strict=True)
    ]
    for step in zip(*drawn, strict=True):
        images = torch.stack([images for images, _ in step]).to(device)
        labels = torch.stack([labels for _, labels in step]).to(device)
        values = {name: parameter.detach() for name, parameter in parameters.items()}
        for name, gradient in gradients(values, buffers, images, labels).items():
            parameters[name].grad = gradient
        optimizer.step()
    states = {name: tensor.detach().cpu() for name, tensor in (*parameters.items(), *buffers.items())}
    names = [name for name in network.state_dict() if name in states]
    return [
        ModelState(client=SERVER, round=craft.round, state={name: states[name][i].clone() for name in names})
        for i in range(count)
    ]


def _repeated(tensor: Tensor, count: int) -> Tensor:
    return tensor.detach().expand(count, *tensor.shape).clone()


def _dotless(parameters: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """The same under names that a module may have."""
    return {name.replace(".", "/"): parameter for name, parameter in parameters.items()}
