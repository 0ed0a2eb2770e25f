"""Early stopping keeps the weights that did best on data left out, the first included."""

import pytest
import torch
from torch import nn

from fdgpriv.models.early_stopping import EarlyStopping


def _tried(losses: list[float], patience: int) -> tuple[int, float]:
    """The number of checks until it was due, or all, and the weight that is left: the number of its check, 0 the first."""
    network = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(network.weight)
    coming = iter(losses)
    stopping = EarlyStopping(network, lambda: next(coming), patience)
    for check in range(1, len(losses)):
        nn.init.constant_(network.weight, check)
        if stopping.is_due():
            break
    stopping.restore()
    return check, network.weight.item()


@pytest.mark.parametrize(
    ("losses", "patience", "checks", "kept"),
    [
        ([3, 2, 1], 2, 2, 2),  # always better: all checks, the last weights
        ([1, 2, 3, 0], 2, 2, 0),  # due after two in vain; the first weights
        ([1, 2, 0, 5, 6, 0], 2, 4, 2),  # progress starts the count anew
        ([1, 1, 1], 1, 1, 0),  # equal is no progress
    ],
)
def test_the_best_weights_are_kept(losses: list[float], patience: int, checks: int, kept: float) -> None:
    assert _tried(losses, patience) == (checks, kept)


def test_a_check_is_in_evaluation_mode() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).train()
    modes: list[bool] = []

    def loss() -> float:
        modes.append(network.training)
        return network(torch.ones(1, 2)).sum().item()  # one input has no batch statistics in training mode

    stopping = EarlyStopping(network, loss, 1)
    stopping.is_due()
    assert modes == [False, False]
    assert network.training
