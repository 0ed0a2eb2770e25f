"""The neighbouring data sets of a differential privacy guarantee: one unit added or removed, or one unit replaced."""

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
