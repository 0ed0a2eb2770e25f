"""Measures the epsilon of a defense's releases from draws of two neighbouring worlds, beside what it proves."""

import numpy as np

from fdgpriv.federation import generator
from fdgpriv.finding import EpsilonMeasured, Privacy
from fdgpriv.privacy.measured import clopper_pearson, gdp, held_out_counts
from fdgpriv.roles import Defense

DRAWS = {"quick": 2_000, "default": 20_000, "paper": 100_000}


def privacy(defense: Defense, dim: int, draws: int, seed: int) -> Privacy:
    """What `defense` proves, what its own worst case shows, and whether the two can both be true.

    The verdict rests on the Clopper-Pearson bound at 95 %, which assumes nothing about the mechanism; the GDP bound
    beside it is sharper and valid for Gaussian noise only.

    Args:
        defense: Calibrated to the run.
        dim: Length of the vector that one release holds.
        draws: Independent runs of each world: half choose the threshold, half test.
        seed: Of the noise.
    """
    proved = defense.guarantee()
    if proved.epsilon is None or proved.delta is None:
        return Privacy(epsilon_proved=None, delta=None, statement=proved.statement, verdict="no_guarantee")
    stated = {"epsilon_proved": proved.epsilon, "delta": proved.delta, "statement": proved.statement}
    worlds = defense.worlds(dim, draws, generator(seed, 6))
    if worlds is None:
        return Privacy(**stated, verdict="not_measured")
    inside, outside = (world.double().numpy() for world in worlds)
    rng = np.random.default_rng(seed)
    counts = held_out_counts(inside, outside, proved.delta, rng)
    exact = clopper_pearson(counts, proved.delta)
    gaussian = gdp(held_out_counts(inside, outside, proved.delta, rng, lower=gdp), proved.delta)
    perfect = clopper_pearson(type(counts)(0, counts.n_out, 0, counts.n_in), proved.delta)
    shown = exact.epsilon or 0.0
    verdict = "violation" if shown > proved.epsilon else ("saturated" if exact.saturated else "consistent")
    return Privacy(
        **stated,
        epsilon_measured=EpsilonMeasured(clopper_pearson=exact.epsilon, gdp=gaussian.epsilon, one_run=None),
        ceiling=perfect.epsilon,
        verdict=verdict,
    )
