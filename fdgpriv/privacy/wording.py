"""A differential privacy guarantee in plain words."""

import math
from typing import Literal

from fdgpriv.privacy.adjacency import Adjacency, Unit
from fdgpriv.privacy.budget import whole
from fdgpriv.utils.defaults import Bug

_CHANGES = {
    (Adjacency.ADD_REMOVE, "image"): "one image more or less in this client",
    (Adjacency.REPLACE_ONE, "image"): "replacing one image of this client by another",
    (Adjacency.ADD_REMOVE, "client"): "whether this client takes part with all its images",
    (Adjacency.REPLACE_ONE, "client"): "replacing all images of this client by others",
}


def in_words(
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    unit: Unit,
    times: int = 1,
    of: Literal["round", "release"] = "round",
) -> str:
    """What (epsilon, delta)-DP over all rounds or releases promises about what the server can say of one unit.

    Args:
        epsilon: Of all of them together, in nats, >= 0.
        delta: In [0, 1); 0 for a pure epsilon.
        adjacency: What is done to one unit.
        unit: image or client.
        times: Number of rounds or releases that the guarantee is over.
        of: Which of the two.

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
    over = f"over all {times} {of}s" if whole(f"{of}s", times) > 1 else f"over one {of}"
    change = _CHANGES[adjacency, unit]
    return f"{change} changes what the server can say by at most a factor {factor}{but} {over}"


def bug_warning(bug: Bug | None) -> str:
    """The start of a guarantee whose noise was made too small on purpose (``--inject-bug``); empty without a bug."""
    return "" if bug is None else f"BUG INJECTED ({bug}): the noise is too small for this claim. "
