"""Lower bounds on epsilon from N-way identification of the image behind a release among N candidates.

Converts reconstruction success into a bound on epsilon; the chance level is 1/N. Conditions: the N datasets differ in
exactly one unit (one image, or one client for client-level epsilon), the target is uniformly random, noise is independent
in every trial, and one release is one trial. Approximate success ("LPIPS below tau") gives no epsilon: map the
reconstruction to its nearest candidate first.
"""

import math

from fdgpriv.privacy.measured import Bound
from fdgpriv.statistics.interval import lower_rate


def identification(
    successes: int, trials: int, candidates: int, delta: float, error: float = 0.05, listed: int = 1
) -> Bound:
    """eps_lb = ln(N (g - delta) / k), at most ln(N / k), for replace-one and add/remove adjacency.

    g is the Clopper-Pearson lower bound of the success rate at one-sided level `error`.

    Args:
        successes: Trials in which the target was among the top `listed` candidates.
        trials: Number of trials.
        candidates: N >= 2.
        delta: In [0, 1).
        error: Error probability of the bound.
        listed: k, the number of top candidates that count as success.
    """
    g = _rate(successes, trials, candidates, delta, error)
    if not 1 <= listed < candidates:
        raise ValueError(f"want 1 <= listed < candidates, got {listed} of {candidates}")
    ratio = candidates * (g - delta) / listed
    return Bound(math.log(ratio) if ratio > 1 else 0.0, error, successes == trials)


def identification_replace_one(
    successes: int, trials: int, candidates: int, delta: float, error: float = 0.05
) -> Bound:
    """eps_lb = ln[(N - 1)(g - delta) / (1 - g)], a tighter bound for replace-one adjacency only.

    It is attained by N-ary randomized response.
    """
    g = _rate(successes, trials, candidates, delta, error)
    ratio = (candidates - 1) * (g - delta) / (1 - g)
    return Bound(math.log(ratio) if ratio > 1 else 0.0, error, successes == trials)


def _rate(successes: int, trials: int, candidates: int, delta: float, error: float) -> float:
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"want 0 <= successes <= trials and trials >= 1, got {successes} of {trials}")
    if candidates < 2:
        raise ValueError(f"want at least 2 candidates, got {candidates}")
    if not 0 <= delta < 1 or not 0 < error < 1:
        raise ValueError(f"want delta in [0, 1) and error in (0, 1), got {delta}, {error}")
    return lower_rate(successes, trials, error)
