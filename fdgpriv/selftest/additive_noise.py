"""Threshold counts of many scores in two worlds with additive noise, drawn exactly without drawing every score.

A rule that tries thresholds at pooled quantiles sees nothing of the scores but the counts below these thresholds. The score
axis is cut into cells; the numbers of scores per cell are multinomial; and single scores are drawn only in the cells where
a quantile lies, given their number. The counts have the same distribution as those of plainly drawn scores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fdgpriv.privacy.measured import Counts, Lower, best_of, counting_bound, quantile_places

Rng: TypeAlias = np.random.Generator
Array: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class NoiseDistribution:
    """A continuous distribution on the line.

    Attributes:
        cdf: Of scores (n,), in [0, 1].
        quantile: Its inverse.
    """

    cdf: Callable[[Array], Array]
    quantile: Callable[[Array], Array]


def _laplace_cdf(x: Array) -> Array:
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


def _laplace_quantile(p: Array) -> Array:
    with np.errstate(divide="ignore"):  # the ends are infinite
        return np.where(p < 0.5, np.log(2 * p), -np.log(2 * (1 - p)))


LAPLACE = NoiseDistribution(_laplace_cdf, _laplace_quantile)
NORMAL = NoiseDistribution(special.ndtr, special.ndtri)


@dataclass(frozen=True)
class QuantileCounts:
    """Pooled quantiles of scores of two worlds (K,), ascending, and the scores at or below each, by world (K,)."""

    thresholds: Array
    below_in: Places
    below_out: Places


@dataclass(frozen=True)
class Worlds:
    """Scores noise + shift in the world with the record, and noise alone in the world without it.

    Attributes:
        noise: Of scale 1.
        shift: Sensitivity over the noise's scale: epsilon for Laplace noise, mu = 1/z for Gaussian noise.
    """

    noise: NoiseDistribution
    shift: float

    def held_out_counts(self, draws: int, delta: float, rng: Rng, lower: Lower = counting_bound) -> Counts:
        """As `measured.held_out_counts` of `draws` scores of each world, in distribution."""
        half = draws // 2
        tried = self.quantile_counts(half, quantile_places(2 * half), rng)
        counts = [
            Counts(half - b, half, a, half)
            for a, b in zip(tried.below_in.tolist(), tried.below_out.tolist(), strict=True)
        ]
        threshold = tried.thresholds[best_of(counts, delta, lower)]
        rest = draws - half
        accused = rng.binomial(rest, 1 - self.noise.cdf(threshold))
        missed = rng.binomial(rest, self.noise.cdf(threshold - self.shift))
        return Counts(int(accused), rest, int(missed), rest)

    def quantile_counts(self, draws: int, places: Places, rng: Rng) -> QuantileCounts:
        """The pooled scores at these ranks (K,), ascending from 0, of `draws` scores of each world, and the counts there."""
        cells_in, cells_out = self._cells(round(np.sqrt(len(places) * draws)))
        inside, outside = (rng.multinomial(draws, np.diff(cells)) for cells in (cells_in, cells_out))
        upto = np.cumsum(inside + outside)
        cell = np.searchsorted(
            upto, places, side="right"
        )  # the first cell that the scores up to this rank do not end in
        opened, index = np.unique(cell, return_inverse=True)
        scores = [
            self._scores(cells, counts[opened], opened, shift, rng)
            for cells, counts, shift in ((cells_in, inside, self.shift), (cells_out, outside, 0.0))
        ]
        pooled = np.concatenate(scores)
        order = np.argsort(pooled)
        sizes = (inside + outside)[opened]
        local = places - (upto - inside - outside)[cell] + (np.cumsum(sizes) - sizes)[index]
        from_in = np.cumsum(
            order < len(scores[0])
        )  # of the drawn scores up to each, those of the world with the record
        skipped = (np.cumsum(inside) - inside)[cell] - (np.cumsum(inside[opened]) - inside[opened])[index]
        below_in = from_in[local] + skipped
        return QuantileCounts(pooled[order][local], below_in, places + 1 - below_in)

    def _cells(self, count: int) -> tuple[Array, Array]:
        """The distribution functions of both worlds, with and without the record, at the bounds of about `count` cells."""
        quantiles = self.noise.quantile(np.linspace(0, 1, count // 2 + 2)[1:-1])
        bounds = np.concatenate([[-np.inf], np.unique([quantiles, quantiles + self.shift]), [np.inf]])
        return self.noise.cdf(bounds - self.shift), self.noise.cdf(bounds)

    def _scores(self, cells: Array, counts: Places, opened: Places, shift: float, rng: Rng) -> Array:
        """`counts` scores of one world in each of the opened cells."""
        low, high = np.repeat(cells[opened], counts), np.repeat(cells[opened + 1], counts)
        return self.noise.quantile(rng.uniform(low, high)) + shift
