"""A differential privacy guarantee in plain words."""

import math

from fdgpriv.privacy.adjacency import Adjacency, Unit
from fdgpriv.privacy.budget import whole

_CHANGES = {
    (Adjacency.ADD_REMOVE, "image"): "one image more or less in this client",
    (Adjacency.REPLACE_ONE, "image"): "one image of this client replaced by another",
    (Adjacency.ADD_REMOVE, "client"): "this client with all its images taking part or not",
    (Adjacency.REPLACE_ONE, "client"): "all images of this client replaced by others",
}


def in_words(epsilon: float, delta: float, adjacency: Adjacency, unit: Unit, rounds: int = 1) -> str:
    """What (epsilon, delta)-DP over all rounds promises about what the server can say of one unit.

    Args:
        epsilon: Of all rounds together, in nats, >= 0.
        delta: In [0, 1); 0 for a pure epsilon.
        adjacency: What is done to one unit.
        unit: image or client.
        rounds: Number of rounds that the guarantee is over.

    Example: `in_words(4, 1e-5, Adjacency.ADD_REMOVE, "image", 16)` is "one image more or less in this client changes what
        the server can say by at most a factor e^4 = 54.6, but for probability 1e-05, over all 16 rounds".
    """
    if not (math.isfinite(epsilon) and epsilon >= 0 and 0 <= delta < 1):
        raise ValueError(f"want epsilon >= 0 and delta in [0, 1), got {epsilon}, {delta}")
    try:
        factor = f"e^{epsilon:g} = {math.exp(epsilon):.3g}"
    except OverflowError:
        factor = f"e^{epsilon:g}"
    but = f", but for probability {delta:g}," if delta else ""
    over = f"over all {rounds} rounds" if whole("rounds", rounds) > 1 else "over one round"
    change = _CHANGES[adjacency, unit]
    return f"{change} changes what the server can say by at most a factor {factor}{but} {over}"
