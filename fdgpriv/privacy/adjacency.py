"""The neighbouring data sets of a differential privacy guarantee: one unit added or removed, or one unit replaced."""

from collections.abc import Mapping
from enum import Enum
from typing import Literal

Unit = Literal["image", "client"]  # what neighbouring data sets differ in: one image, or all images, of a client


class Adjacency(Enum):
    """What is done to one unit; the value is the number of vectors of norm C by which a sum then changes at most.

    At delta = 0, epsilon for ADD_REMOVE implies 2 epsilon for REPLACE_ONE and no less: an epsilon without its adjacency
    is not a claim. A plain mean tells n if one image is added, so ADD_REMOVE needs a public divisor n0 instead of n.
    """

    ADD_REMOVE = 1
    REPLACE_ONE = 2


def check_delta(defense: str, delta: float, sizes: Mapping[str, int]) -> None:
    """Raises ValueError where `delta` is so large that giving away one image of a client would be allowed.

    Args:
        defense: Its name, for the error.
        delta: Of the guarantee.
        sizes: Each client's number of images.
    """
    largest = max(sizes, key=lambda name: sizes[name])
    if delta * sizes[largest] >= 1:
        raise ValueError(
            f"{defense}.delta: want less than 1/n for every client, got {delta:g} and {sizes[largest]} images of {largest}"
        )
