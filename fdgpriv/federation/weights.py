"""How a server weighs its clients in averages: by their numbers of samples, or equally."""

from collections.abc import Collection
from typing import Literal

Weights = Literal["samples", "uniform"]
SIMILAR_SIZES = 0.05  # sizes that differ by at most this share count as equal


def effective(weights: Weights | None, sizes: Collection[int]) -> Weights | None:
    """The weights of clients with these numbers of samples: ``uniform`` also for weights by samples if sizes are similar.

    None (of a method that averages no models) stays None.
    """
    if weights == "samples" and max(sizes) <= (1 + SIMILAR_SIZES) * min(sizes):
        return "uniform"
    return weights
