"""Gives lazily built layers the shapes that their input determines."""

from contextlib import suppress
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


def with_shapes(network: nn.Module, images: Tensor) -> nn.Module:
    """The network, in which lazy layers have the shapes that images (N, C, H, W) give; unchanged if it has none."""
    if not any(is_lazy(tensor) for tensor in network.state_dict(keep_vars=True).values()):
        return network
    network = deepcopy(network)
    training = network.training
    with suppress(Exception), torch.no_grad():  # what else it does not take, the caller says
        network.eval()(images)
    return network.train(training)
