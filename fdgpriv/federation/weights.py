"""How a server weighs its clients in averages: by their numbers of samples, or equally."""

from collections.abc import Collection
from typing import Literal

Weights = Literal["samples", "uniform"]
ALIKE = 0.05  # sizes that differ by at most this share give weights that are as good as equal


def effective(weights: Weights | None, sizes: Collection[int]) -> Weights | None:
    """The weights of clients with these numbers of samples: ``uniform`` also by samples, if all have about as many.

    None, of a method that averages no models, stays None.
    """
    if weights == "samples" and max(sizes) <= (1 + ALIKE) * min(sizes):
        return "uniform"
    return weights
