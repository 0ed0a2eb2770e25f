"""Audits defenses' privacy guarantees: measures epsilon on simulated releases in two neighbouring worlds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fdgpriv.defense import Defense, Guarantee
from fdgpriv.privacy.measured import Bound, ceiling, counting_bound, gdp, held_out_counts
from fdgpriv.privacy.training_audit import CanaryAudit
from fdgpriv.privacy.violation import LEVEL, violation
from fdgpriv.results.finding import EpsilonMeasured, Privacy
from fdgpriv.statistics.multiplicity import holm
from fdgpriv.utils.seeds import generator

DRAWS = {"quick": 20_000, "default": 100_000, "thorough": 100_000, "paper": 100_000}
ENTRIES = 2  # simulated of a released vector: noise is independent of its length, and so is its worst case


@dataclass(frozen=True)
class Measurement:
    """One defense's guarantee and the epsilon measured in its worst case.

    Attributes:
        proved: The stated guarantee.
        exact: Clopper-Pearson lower bound on epsilon at 95 %, without assumptions; None if not measured.
        gaussian: The GDP bound; None unless all noise is Gaussian.
        most: The bound of a perfect attack with the same number of samples.
        p: p-value of "epsilon is at most the proved one", from the exact bound; of an audit by training, whose exact bound
            finds about half of epsilon, from the smaller of both with Bonferroni's correction.
        one_run: Whether `exact` is from canaries in one training.
    """

    proved: Guarantee
    exact: Bound | None = None
    gaussian: Bound | None = None
    most: float | None = None
    p: float | None = None
    one_run: bool = False


def measure(
    defense: Defense, dim: int, draws: int, seed: int, trained: Callable[[], CanaryAudit | None] = lambda: None
) -> Measurement:
    """Measures epsilon of `defense` by membership inference in its worst case, or by canaries in its training.

    Args:
        defense: Calibrated to the run.
        dim: Length of one released vector, of which at most `ENTRIES` are simulated.
        draws: Number of independent runs of each world: half choose the threshold, half test.
        seed: Of the noise.
        trained: Audits the defense in a training of one client; None if its guarantee is not about the training.
    """
    proved = defense.guarantee()
    epsilon, delta = proved.epsilon, proved.delta
    if epsilon is not None and (audit := trained()) is not None:
        p = min(1.0, 2 * min(audit.p, audit.gaussian_p)) if proved.gaussian else audit.p
        return Measurement(proved, audit.bound, audit.gaussian, audit.most, p, one_run=True)
    worlds = None if epsilon is None else defense.worlds(min(dim, ENTRIES), draws, generator(seed, 6))
    if worlds is None or epsilon is None or delta is None:
        return Measurement(proved)
    inside, outside = (world.double().numpy() for world in worlds)
    rng = np.random.default_rng(seed)
    counts = held_out_counts(inside, outside, delta, rng)
    return Measurement(
        proved,
        exact=counting_bound(counts, delta),
        gaussian=gdp(held_out_counts(inside, outside, delta, rng, lower=gdp), delta) if proved.gaussian else None,
        most=ceiling(counts.n_in, delta),
        p=violation(lambda error: counting_bound(counts, delta, error), epsilon),
    )


def privacies(measurements: Sequence[Measurement]) -> list[Privacy]:
    """The privacy statement of each measurement, with violations tested at level 0.05 after Holm's correction."""
    tested = [m.p for m in measurements if m.p is not None]
    corrected = iter(holm(tested))
    return [_privacy(m, None if m.p is None else next(corrected)) for m in measurements]


def _privacy(found: Measurement, p: float | None) -> Privacy:
    proved = found.proved
    if proved.epsilon is None:
        return Privacy(epsilon_proved=None, delta=None, statement=proved.statement, verdict="no_guarantee")
    if found.exact is None or p is None:
        return Privacy(
            epsilon_proved=proved.epsilon, delta=proved.delta, statement=proved.statement, verdict="not_measured"
        )
    return Privacy(
        epsilon_proved=proved.epsilon,
        delta=proved.delta,
        statement=proved.statement,
        epsilon_measured=EpsilonMeasured(
            clopper_pearson=None if found.one_run else found.exact.epsilon,
            gdp=found.gaussian.epsilon if found.gaussian else None,
            one_run=found.exact.epsilon if found.one_run else None,
        ),
        ceiling=found.most,
        verdict="violation" if p <= LEVEL else ("saturated" if found.exact.saturated else "consistent"),
    )
