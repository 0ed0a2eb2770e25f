"""Shadow models: many trainings from one model, as clients would have made them, all at once where that is faster.

Carlini et al., "Membership inference attacks from first principles", S&P 2022, train theirs one by one.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fdgpriv.artifact import SERVER, ModelState
from fdgpriv.federation import generator
from fdgpriv.subjects import Holding, TrainingCraft

_SMALL = 8  # images; with fewer a step is mostly overhead, which shadows trained together share (tests/bench)


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
    craft.method.ready(network)
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
