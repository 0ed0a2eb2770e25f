"""What a shared statistic gives away in closed form where few stand behind it: no data, no training, no search."""

import torch
from torch import Tensor


def two_values(mean: Tensor, variance: Tensor) -> Tensor:
    """Both values (2, C) of which `mean` (C,) is the mean and `variance` (C,) the biased variance, the lower one first.

    mean -+ sqrt(variance): exact where two stand behind them, though not which of two channels' values belong together;
    exact where it is one, twice. Of more, it is two values that have these moments. StableFDG's Phi, METHODS 4b.
    """
    deviation = variance.clamp_min(0).sqrt()
    return torch.stack([mean - deviation, mean + deviation])


def mean_of_others(shared: Tensor, own: Tensor, clients: int) -> Tensor:
    """The mean (D,) of all other clients' styles where `shared` (D,) is the mean of all `clients`, `own` among them.

    Of two clients that is the other's style. PARDON's interpolation style of two or three clients is such a mean:
    FINCH's finest partition is one cluster, and the median over one is itself (METHODS 8b).
    """
    if clients < 2:
        raise ValueError(f"want at least 2 clients, got {clients}")
    return (clients * shared - own) / (clients - 1)


def other_term(total: Tensor, own: Tensor) -> Tensor:
    """The other client's tensor where `total` sums those of two: LSI's normaliser of importances at m = 2 (METHODS 7b)."""
    return total - own
