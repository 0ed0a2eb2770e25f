"""Is a claimed epsilon false? The p-value of the claim from any lower bound on epsilon."""

import math
from collections.abc import Callable

from fdgpriv.privacy.measured import Bound

LEVEL = 0.05
"""Level of the family of all violation p-values of a report, after Holm."""


def violation(bound: Callable[[float], Bound], claimed: float) -> float:
    """p-value of "epsilon <= claimed": the smallest error at which the lower bound exceeds the claim, 1 if none does.

    The bound must be for the claim's own delta, unit (image or client), adjacency and number of rounds. For one run
    the p-value needs no search: it is `one_run_p` at the claimed epsilon.

    Args:
        bound: Lower bound by its error, rising with it.
        claimed: The claimed epsilon, >= 0.

    Returns: in [1e-300, 1].
    Example: `violation(lambda error: counting_bound(counts, 1e-5, error), 4.0)`.
    """
    if not (math.isfinite(claimed) and claimed >= 0):
        raise ValueError(f"want a claimed epsilon >= 0, got {claimed}")

    def exceeds(log_error: float) -> bool:
        found = bound(math.exp(log_error)).epsilon
        return found is not None and found > claimed

    low, high = math.log(1e-300), math.log1p(-1e-9)
    if not exceeds(high):
        return 1.0
    if exceeds(low):
        return 1e-300
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if exceeds(middle) else (middle, high)
    return math.exp(high)
