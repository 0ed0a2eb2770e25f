"""p-value of a claimed epsilon from a lower confidence bound on epsilon."""

import math
from collections.abc import Callable

from fdgpriv.privacy.measured import Bound

LEVEL = 0.05
"""Family-wise level of all violation tests of a report, with Holm's correction."""


def violation(bound: Callable[[float], Bound], claimed: float) -> float:
    """p-value of "epsilon <= claimed": the smallest error at which the lower bound exceeds the claim, 1 if none does.

    The bound must have the claim's delta, unit (image or client), adjacency and number of rounds. For one-run audits
    the p-value is `one_run_p` at the claimed epsilon, without a search.

    Args:
        bound: Lower bound as an increasing function of its error.
        claimed: The claimed epsilon, >= 0.

    Returns: in [1e-300, 1].
    Example: `violation(lambda error: counting_bound(counts, 1e-5, error), 4.0)`.
    """
    if not (math.isfinite(claimed) and claimed >= 0):
        raise ValueError(f"want a claimed epsilon >= 0, got {claimed}")

    def exceeds(log_error: float) -> bool:
        epsilon = bound(math.exp(log_error)).epsilon
        return epsilon is not None and epsilon > claimed

    low, high = math.log(1e-300), math.log1p(-1e-9)
    if not exceeds(high):
        return 1.0
    if exceeds(low):
        return 1e-300
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if exceeds(middle) else (middle, high)
    return math.exp(high)
