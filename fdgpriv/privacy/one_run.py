"""Lower bound on epsilon from one run with many canaries, each included by an independent coin flip.

Reference: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, arXiv 2305.08846.
The canaries' adjacency must be the claim's: `canaries` makes them for style space.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fdgpriv.privacy.measured import Bound

GUESSED = 0.05
"""Share of the canaries that is predicted "in", and share that is predicted "out"."""


@dataclass(frozen=True)
class OneRun:
    """The result of a one-run audit.

    Attributes:
        bound: Lower bound on epsilon.
        p: p-value of the claimed epsilon.
        guesses: r, the number of predictions.
        correct: v, the number of correct ones.
    """

    bound: Bound
    p: float
    guesses: int
    correct: int


def one_run_audit(
    scores: ArrayLike, coins: ArrayLike, guesses: int, claimed: float, delta: float, error: float = 0.05
) -> OneRun:
    """Lower bound on epsilon, and p-value of "the mechanism is (claimed, delta)-DP", from the canaries' scores.

    The higher half of the guesses is predicted "in" (+e), the lower half "out" (-e); of an odd number one more is "in".

    Args:
        scores: Of all canaries (m,), higher means "in"; without NaN.
        coins: Whether each canary was in, or had the sign + (m,), boolean: independent fair coins.
        guesses: r in [1, m], fixed before the scores are seen; `few_guesses` gives 5 % + 5 %.
        claimed: The claimed epsilon, >= 0, for the canaries' adjacency.
        delta: Of the claim, in [0, 1).
        error: Error probability of the bound.
    """
    if guesses < 1:
        raise ValueError(f"want at least 1 guess, got {guesses}")
    m = np.asarray(scores).size
    predictions, correct = one_run_guesses(scores, coins, guesses - guesses // 2, guesses // 2)
    bound = one_run(m, predictions, correct, delta, error)
    return OneRun(bound, one_run_p(m, predictions, correct, claimed, delta), predictions, correct)


def few_guesses(canaries: int) -> int:
    """r = 5 % + 5 % of m canaries, at least 2; e.g. 102 of 1,024."""
    return 2 * max(1, int(GUESSED * canaries))


def one_run_p(canaries: int, predictions: int, correct: int, epsilon: float, delta: float) -> float:
    """p-value of the hypothesis "the mechanism is (epsilon, delta)-DP", from the number of correct predictions.

    p(eps) = min(1, P[W >= v] + 2 m delta max_{1<=i<=v} P[v-i <= W < v] / i), W ~ Bin(r, e^eps / (1 + e^eps)).

    Args:
        canaries: m, the number of canaries.
        predictions: r <= m, the number of predictions; fixed before the scores were seen.
        correct: v <= r, the number of correct predictions.
        epsilon: At least 0.
        delta: In [0, 1).
    """
    m, r, v = canaries, predictions, correct
    if not 0 <= v <= r <= m or m < 1:
        raise ValueError(f"want 0 <= correct <= predictions <= canaries, got {v}, {r}, {m}")
    if epsilon < 0 or not 0 <= delta < 1:
        raise ValueError(f"want epsilon >= 0 and delta in [0, 1), got {epsilon}, {delta}")
    q = float(1 / (1 + np.exp(-epsilon)))
    tail = float(stats.binom.sf(v - 1, r, q))
    if v == 0 or delta == 0:
        return min(1.0, tail)
    below = np.cumsum(stats.binom.pmf(np.arange(v - 1, -1, -1), r, q))  # P[v - i <= W < v] at i = 1..v
    return min(1.0, tail + 2 * m * delta * float((below / np.arange(1, v + 1)).max()))


@lru_cache(maxsize=1024)
def one_run(canaries: int, predictions: int, correct: int, delta: float, error: float = 0.05) -> Bound:
    """Lower bound inf{eps : p(eps) >= error}, 0 if p(0) >= error."""
    if not 0 < error < 1:
        raise ValueError(f"want error in (0, 1), got {error}")
    if predictions == 0:
        return Bound(None, error, reason="no predictions were made")

    def p(epsilon: float) -> float:
        return one_run_p(canaries, predictions, correct, epsilon, delta)

    saturated = correct == predictions
    if p(0.0) >= error:
        return Bound(0.0, error, saturated)
    low, high = 0.0, 1.0
    while p(high) < error:
        low, high = high, 2 * high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if p(middle) < error else (low, middle)
    return Bound(low, error, saturated)


def one_run_guesses(scores: ArrayLike, coins: ArrayLike, highest: int, lowest: int) -> tuple[int, int]:
    """Numbers of predictions and of correct ones: the highest scores are predicted "in", the lowest "out".

    Args:
        scores: Of all canaries (m,), higher means "in".
        coins: Whether each was included (m,), boolean.
        highest: Number predicted "in" (usually 5 % of m), fixed beforehand.
        lowest: Number predicted "out", fixed beforehand.
    """
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(coins, dtype=bool)
    if values.ndim != 1 or values.shape != truth.shape or np.isnan(values).any():
        raise ValueError(f"want scores without NaN and coins of one shape (m,), got {values.shape}, {truth.shape}")
    if highest < 0 or lowest < 0 or highest + lowest > len(values):
        raise ValueError(f"want highest + lowest <= {len(values)}, got {highest} + {lowest}")
    order = np.argsort(values, kind="stable")
    correct = int(truth[order[len(values) - highest :]].sum()) + int((~truth[order[:lowest]]).sum())
    return highest + lowest, correct


def one_run_ceiling(canaries: int, predictions: int, delta: float, error: float = 0.05) -> float | None:
    """The bound of a perfect attack with this number of canaries: the maximum attainable."""
    return one_run(canaries, predictions, predictions, delta, error).epsilon
