"""Early stopping: the weights of a network that do best on data left out, and whether training on is in vain."""

import copy
from collections.abc import Callable

from torch import nn


class EarlyStopping:
    """Keeps a network's weights with the least loss; its present weights are the first.

    Args:
        network: Any network.
        loss: Of the network on data left out, when it is called.
        patience: Number of consecutive checks without a lower loss after which training should end.
    """

    def __init__(self, network: nn.Module, loss: Callable[[], float], patience: int) -> None:
        self.network, self.loss, self.patience = network, loss, patience
        self._checks_without_progress = 0
        self._lowest = self._current_loss()
        self._weights = copy.deepcopy(network.state_dict())

    def is_due(self) -> bool:
        """Checks the present weights; returns whether the last `patience` checks all failed to lower the loss."""
        loss = self._current_loss()
        if loss < self._lowest:
            self._lowest, self._checks_without_progress = loss, 0
            self._weights = copy.deepcopy(self.network.state_dict())
        else:
            self._checks_without_progress += 1
        return self._checks_without_progress >= self.patience

    def restore(self) -> None:
        """Gives the network its best weights."""
        self.network.load_state_dict(self._weights)

    def _current_loss(self) -> float:
        training = self.network.training
        self.network.eval()
        loss = self.loss()
        self.network.train(training)
        return loss
