"""Lower bounds on epsilon from membership scores in two neighbouring worlds: exact, and tighter for Gaussian noise.

One world contains the record and one does not; each is sampled many times independently, and each sample has a membership
score. For additive noise the score is <release, v> with v the noiseless difference of the two worlds. A bound states how
much leakage was *demonstrated*. A low bound is not evidence of privacy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fdgpriv.privacy.accounting import gdp_epsilon
from fdgpriv.statistics.interval import upper_rate

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Bound:
    """A lower confidence bound on epsilon.

    Attributes:
        epsilon: In nats, >= 0; None where none could be computed.
        error: alpha: the bound exceeds the true epsilon with at most this probability.
        saturated: The attack made no error, so the bound is limited by the number of trials: report ">= epsilon,
            saturated".
        reason: Why epsilon is None.
    """

    epsilon: float | None
    error: float
    saturated: bool = False
    reason: str | None = None


@dataclass(frozen=True)
class Counts:
    """Error counts of a membership test at a threshold chosen on other data."""

    false_positives: int
    n_out: int
    false_negatives: int
    n_in: int

    def __post_init__(self) -> None:
        if not (0 <= self.false_positives <= self.n_out and 0 <= self.false_negatives <= self.n_in):
            raise ValueError(f"want 0 <= mistakes <= trials, got {self}")
        if not (self.n_out and self.n_in):
            raise ValueError(f"want trials in both worlds, got {self}")


Lower: TypeAlias = Callable[[Counts, float, float], Bound]
"""`counting_bound` or `gdp`: counts, delta, error."""


def counting_bound(counts: Counts, delta: float, error: float = 0.05) -> Bound:
    """Lower bound without assumptions about the mechanism; the one to report.

    eps_lb = max{0, ln((1 - delta - FNR+) / FPR+), ln((1 - delta - FPR+) / FNR+)}, with Clopper-Pearson upper bounds of the
    rates at error / 2.
    """
    return Bound(max(0.0, _unclamped(counts, delta, error)), error, _perfect(counts))


def gdp(counts: Counts, delta: float, error: float = 0.05) -> Bound:
    """Tighter lower bound, valid *only if the mechanism adds Gaussian noise*; label it so.

    mu_lb = max(0, Phi^-1(1 - FPR+) - Phi^-1(FNR+)), rates at error / 2, converted to epsilon.
    """
    fpr, fnr = _rates(counts, error)
    if delta == 0:
        return Bound(None, error, reason="Gaussian noise has no finite epsilon at delta = 0")
    mu = max(0.0, -float(special.ndtri(fpr)) - float(special.ndtri(fnr)))
    if not math.isfinite(mu):
        return Bound(None, error, reason=f"mistake rates {fpr:.3g} and {fnr:.3g} are out of the range of the bound")
    return Bound(gdp_epsilon(mu, delta), error, _perfect(counts))


def counts_at(scores_in: ArrayLike, scores_out: ArrayLike, thresholds: ArrayLike) -> list[Counts]:
    """Error counts at each threshold (K,): scores above it are classified "in", scores equal to it "out"."""
    inside, outside = _scores("scores_in", scores_in), _scores("scores_out", scores_out)
    cuts = _scores("thresholds", thresholds)

    def at_most(scores: Array) -> list[int]:
        counts: list[int] = np.searchsorted(np.sort(scores), cuts, side="right").tolist()
        return counts

    pairs = zip(at_most(outside), at_most(inside), strict=True)
    return [Counts(len(outside) - below, len(outside), missed, len(inside)) for below, missed in pairs]


def held_out_counts(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    delta: float,
    rng: np.random.Generator,
    lower: Lower = counting_bound,
    candidates: int = 101,
) -> Counts:
    """Splits the samples at random, chooses the threshold on one half, and counts errors on the other.

    Args:
        scores_in: One score per independent sample of the world with the record (T,), T >= 4; higher means "in".
        scores_out: The same for the world without it (T',).
        delta: In [0, 1).
        rng: Splits the samples.
        lower: The bound to maximise on the selection half; apply the same one to the counts.
        candidates: Number of pooled quantiles of the selection half that are tried; many more reduce power.
    """
    inside, outside = _scores("scores_in", scores_in), _scores("scores_out", scores_out)
    if min(len(inside), len(outside)) < 4:
        raise ValueError(f"want at least 4 draws of each world, got {len(inside)} and {len(outside)}")
    inside, outside = rng.permutation(inside), rng.permutation(outside)
    a, b = len(inside) // 2, len(outside) // 2
    pooled = np.sort(np.concatenate([inside[:a], outside[:b]]))
    thresholds = np.unique(pooled[quantile_places(len(pooled), candidates)])
    best = best_of(counts_at(inside[:a], outside[:b], thresholds), delta, lower)
    return counts_at(inside[a:], outside[b:], [float(thresholds[best])])[0]


def best_of(tried: Sequence[Counts], delta: float, lower: Lower = counting_bound) -> int:
    """The index of the counts with the highest bound, the first of equals. The bound at these counts is *biased*: apply it
    to counts of other samples at the same threshold.
    """
    return max(range(len(tried)), key=lambda i: _objective(tried[i], delta, lower))


def quantile_places(scores: int, candidates: int = 101) -> NDArray[np.int64]:
    """The ranks (candidates,) from 0, ascending and evenly spaced, of the sorted scores that are tried as thresholds."""
    return np.linspace(0, scores - 1, candidates).astype(np.int64)


def ceiling(trials: int, delta: float, error: float = 0.05, lower: Lower = counting_bound) -> float | None:
    """The bound of a perfect attack with `trials` test samples of each world: the maximum attainable."""
    return lower(Counts(0, trials, 0, trials), delta, error).epsilon


def _rates(counts: Counts, error: float) -> tuple[float, float]:
    if not 0 < error < 1:
        raise ValueError(f"want error in (0, 1), got {error}")
    return (
        upper_rate(counts.false_positives, counts.n_out, error / 2),
        upper_rate(counts.false_negatives, counts.n_in, error / 2),
    )


def _unclamped(counts: Counts, delta: float, error: float) -> float:
    if not 0 <= delta < 1:
        raise ValueError(f"want delta in [0, 1), got {delta}")
    fpr, fnr = _rates(counts, error)
    sides = [(1 - delta - fnr, fpr), (1 - delta - fpr, fnr)]
    return max(math.log(top / bottom) if top > 0 else -math.inf for top, bottom in sides)


def _objective(counts: Counts, delta: float, lower: Lower) -> tuple[float, float]:
    """The quality of a threshold: its bound; if that is 0, the unclamped bound."""
    bound = lower(counts, delta, 0.05).epsilon or 0.0
    return (bound, 0.0) if bound else (0.0, _unclamped(counts, delta, 0.05))


def _perfect(counts: Counts) -> bool:
    return counts.false_positives == 0 and counts.false_negatives == 0


def _scores(name: str, scores: ArrayLike) -> Array:
    array: Array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"want {name} (T,) with T >= 1, got {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"want {name} without NaN, got {int(np.isnan(array).sum())} of {len(array)}")
    return array
