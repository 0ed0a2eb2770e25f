"""Early stopping: the weights of a network that do best on data left out, and whether training on is in vain."""

import copy
from collections.abc import Callable

from torch import nn


class EarlyStopping:
    """Keeps a network's weights with the least loss; its present weights are the first.

    Args:
        network: Any network.
        loss: Of the network on data left out, when it is called.
        patience: Number of checks in a row without a lesser loss after which training on is in vain.
    """

    def __init__(self, network: nn.Module, loss: Callable[[], float], patience: int) -> None:
        self.network, self.loss, self.patience = network, loss, patience
        self._in_vain = 0
        self._least = self._measured()
        self._weights = copy.deepcopy(network.state_dict())

    def is_due(self) -> bool:
        """Checks the present weights; whether they are, like those before them, no better than earlier ones."""
        loss = self._measured()
        if loss < self._least:
            self._least, self._in_vain = loss, 0
            self._weights = copy.deepcopy(self.network.state_dict())
        else:
            self._in_vain += 1
        return self._in_vain >= self.patience

    def restore(self) -> None:
        """Gives the network its best weights."""
        self.network.load_state_dict(self._weights)

    def _measured(self) -> float:
        training = self.network.training
        self.network.eval()
        loss = self.loss()
        self.network.train(training)
        return loss
