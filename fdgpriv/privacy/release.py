"""Audits defenses' privacy guarantees: measures epsilon on simulated releases in two neighbouring worlds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fdgpriv.defense import Defense, Guarantee
from fdgpriv.privacy.measured import Bound, ceiling, counting_bound, gdp, held_out_counts
from fdgpriv.privacy.training_audit import CanaryAudit
from fdgpriv.privacy.violation import LEVEL, violation
from fdgpriv.results.run import EpsilonMeasured, Privacy
from fdgpriv.statistics.multiplicity import holm
from fdgpriv.utils.seeds import generator

DRAWS = 100_000  # runs of each of the two worlds
ENTRIES = 2  # simulated of a released vector: noise is independent of its length, and so is its worst case


@dataclass(frozen=True)
class Measurement:
    """One defense's guarantee and the epsilon measured in its worst case.

    Attributes:
        proved: The stated guarantee.
        exact: Clopper-Pearson lower bound on epsilon at 95 %, without assumptions; None if not measured.
        gaussian: The GDP bound; None unless all noise is Gaussian.
        ceiling: The bound of a perfect attack with the same number of samples.
        one_run: Lower bound at 95 % from canaries in one run, without assumptions; None if there was none.
        one_run_ceiling: The bound of a perfect attack with as many canaries.
        not_covered: Kinds of artifact that clients share without the guarantee.
        p: p-value of "epsilon is at most the proved one": from the exact bound, and where all noise is Gaussian from the
            smaller of both bounds' with Bonferroni's correction.
    """

    proved: Guarantee
    exact: Bound | None = None
    gaussian: Bound | None = None
    ceiling: float | None = None
    one_run: Bound | None = None
    one_run_ceiling: float | None = None
    p: float | None = None
    not_covered: tuple[str, ...] = ()


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
    if epsilon is None or delta is None:
        return Measurement(proved)
    audit, worlds = trained(), defense.worlds(min(dim, ENTRIES), draws, generator(seed, 6))
    one_run, one_run_ceiling = (None, None) if audit is None else (audit.bound, audit.ceiling)
    if worlds is not None:
        inside, outside = (world.double().numpy() for world in worlds)
        rng = np.random.default_rng(seed)
        counts = held_out_counts(inside, outside, delta, rng)
        exact, p = counting_bound(counts, delta), violation(lambda error: counting_bound(counts, delta, error), epsilon)
        measurement = Measurement(
            proved, exact, ceiling=ceiling(counts.n_in, delta), one_run=one_run, one_run_ceiling=one_run_ceiling, p=p
        )
        if not proved.gaussian:
            return measurement
        counts = held_out_counts(inside, outside, delta, rng, lower=gdp)
        of_gaussian = violation(lambda error: gdp(counts, delta, error), epsilon)
        return replace(measurement, gaussian=gdp(counts, delta), p=_smaller(p, of_gaussian))
    if audit is None:
        return Measurement(proved)
    p = _smaller(audit.p, audit.gaussian_p) if proved.gaussian else audit.p
    return Measurement(
        proved,
        gaussian=audit.gaussian,
        ceiling=one_run_ceiling,
        one_run=one_run,
        one_run_ceiling=one_run_ceiling,
        p=p,
    )


def privacies(measurements: Sequence[Measurement]) -> list[Privacy]:
    """The privacy statement of each measurement, with violations tested at level 0.05 after Holm's correction."""
    tested = [m.p for m in measurements if m.p is not None]
    corrected = iter(holm(tested))
    return [_privacy(m, None if m.p is None else next(corrected)) for m in measurements]


def _privacy(measurement: Measurement, p: float | None) -> Privacy:
    proved = measurement.proved
    if proved.epsilon is None:
        return Privacy(epsilon_proved=None, delta=None, statement=proved.statement, verdict="no_guarantee")
    main = measurement.exact or measurement.one_run
    claimed = Privacy(
        epsilon_proved=proved.epsilon,
        delta=proved.delta,
        statement=proved.statement,
        unit=proved.unit,
        not_covered=measurement.not_covered,
        verdict="not_measured",
    )
    if main is None or p is None:
        return claimed
    measured = EpsilonMeasured(
        clopper_pearson=_epsilon(measurement.exact),
        gdp=_epsilon(measurement.gaussian),
        one_run=_epsilon(measurement.one_run),
        one_run_ceiling=measurement.one_run_ceiling,
    )
    verdict = "violation" if p <= LEVEL else ("saturated" if main.saturated else "consistent")
    return claimed.model_copy(update={"epsilon_measured": measured, "ceiling": measurement.ceiling, "verdict": verdict})


def _smaller(p: float, other: float) -> float:
    """The smaller of two p-values, with Bonferroni's correction."""
    return min(1.0, 2 * min(p, other))


def _epsilon(bound: Bound | None) -> float | None:
    return None if bound is None else bound.epsilon
