"""Epsilon measured from one run: many canaries, each in by a coin of its own.

Reference: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, arXiv 2305.08846.
An in/out canary tests an add/remove claim (a shift of C/n0). For a replace-one claim the coin chooses +e or -e.
In style space the canaries are orthonormal directions of norm C, so that they do not disturb each other.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from fdgpriv.privacy.measured import Bound


def one_run_p(canaries: int, predictions: int, correct: int, epsilon: float, delta: float) -> float:
    """p-value of "the mechanism is (epsilon, delta)-DP": how likely are so many correct predictions?

    p(eps) = min(1, P[W >= v] + 2 m delta max_{1<=i<=v} P[v-i <= W < v] / i), W ~ Bin(r, e^eps / (1 + e^eps)).

    Args:
        canaries: m, all canaries with a coin.
        predictions: r <= m, those guessed at; fixed before the scores were seen.
        correct: v <= r.
    """
    m, r, v = canaries, predictions, correct
    if not 0 <= v <= r <= m or m < 1:
        raise ValueError(f"want 0 <= correct <= guesses <= canaries, got {v}, {r}, {m}")
    if epsilon < 0 or not 0 <= delta < 1:
        raise ValueError(f"want epsilon >= 0 and delta in [0, 1), got {epsilon}, {delta}")
    q = float(1 / (1 + np.exp(-epsilon)))
    tail = float(stats.binom.sf(v - 1, r, q))
    if v == 0 or delta == 0:
        return min(1.0, tail)
    below = np.cumsum(stats.binom.pmf(np.arange(v - 1, -1, -1), r, q))  # P[v - i <= W < v] at i = 1..v
    return min(1.0, tail + 2 * m * delta * float((below / np.arange(1, v + 1)).max()))


def one_run(canaries: int, predictions: int, correct: int, delta: float, error: float = 0.05) -> Bound:
    """Lower bound inf{eps : p(eps) >= error}, 0 if p(0) >= error."""
    if not 0 < error < 1:
        raise ValueError(f"want error in (0, 1), got {error}")
    if predictions == 0:
        return Bound(None, error, reason="no canary was guessed at")

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
    """Guesses made and correct when the highest scores are called "in", the lowest "out", and the rest passed over.

    Args:
        scores: Of all canaries (m,), higher means "in".
        coins: Whether each was in (m,), boolean.
        highest: How many are called "in" (5 % of m is usual), fixed beforehand.
        lowest: How many are called "out".
    """
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(coins, dtype=bool)
    if values.ndim != 1 or values.shape != truth.shape or np.isnan(values).any():
        raise ValueError(f"want scores without NaN and coins of one shape (m,), got {values.shape}, {truth.shape}")
    if highest < 0 or lowest < 0 or highest + lowest > len(values):
        raise ValueError(f"want highest + lowest <= {len(values)}, got {highest} + {lowest}")
    order = np.argsort(values, kind="stable")
    right = int(truth[order[len(values) - highest :]].sum()) + int((~truth[order[:lowest]]).sum())
    return highest + lowest, right


def one_run_ceiling(canaries: int, predictions: int, delta: float, error: float = 0.05) -> float | None:
    """What a perfect attack on so many canaries would show."""
    return one_run(canaries, predictions, predictions, delta, error).epsilon
