"""How often lower bounds on epsilon lie above a known truth, and how often a wrong and a right sensitivity are VIOLATIONs.

Truths: nothing released (epsilon 0); Laplace noise at delta = 0, whose epsilon bounds can reach; Gaussian noise for the
bound that is valid for it alone. At delta = 1e-5 Gaussian noise would hide an uncorrected maximum in the slack of delta.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special

from fdgpriv.privacy.accounting import gdp_epsilon, noise_multiplier
from fdgpriv.privacy.identification import identification_replace_one
from fdgpriv.privacy.measured import Bound, counting_bound, gdp, quantile_places
from fdgpriv.privacy.one_run import few_guesses, one_run_audit
from fdgpriv.privacy.violation import LEVEL, violation
from fdgpriv.selftest.additive_noise import LAPLACE, NORMAL, Rng, Worlds
from fdgpriv.selftest.alarms import Check
from fdgpriv.utils.defaults import EPSILON_DRAWS

RUNS, ALARMS = 400, 0.03
FOUND = 0.95  # least share of VIOLATIONs where the noise is half of what the claim needs
DELTA = 1e-5  # of Gaussian noise
TIGHT = 0.01  # error of bounds that are attained: at 0.05, 20 of 400 would rightly lie above the truth
CANDIDATES = 10
CLAIMS = (1.0, 4.0)


@dataclass(frozen=True)
class KnownEpsilon:
    """A lower bound on the epsilon of a mechanism whose epsilon is known.

    Attributes:
        name: Estimator and mechanism.
        truth: The epsilon.
        bound: The bound from one audit of so many draws.
        mistaken: Whether the estimator is wrong on purpose.
    """

    name: str
    truth: float
    bound: Callable[[int, Rng], Bound]
    mistaken: bool = False

    def alarms(self, runs: int, draws: int, rng: Rng) -> int:
        """Runs in which the bound lies above the truth."""
        return sum((self.bound(draws, rng).epsilon or 0.0) > self.truth for _ in range(runs))


def split_half(epsilon: float, draws: int, rng: Rng) -> Bound:
    """Clopper-Pearson with the threshold from one half of the draws of each world, at delta = 0."""
    return counting_bound(Worlds(LAPLACE, epsilon).held_out_counts(draws, 0.0, rng), 0.0)


def gaussian(mu: float, draws: int, rng: Rng) -> Bound:
    """The GDP bound with the threshold from one half of the draws of each world."""
    return gdp(Worlds(NORMAL, mu).held_out_counts(draws, DELTA, rng, gdp), DELTA)


def one_run(epsilon: float, draws: int, rng: Rng) -> Bound:
    """Steinke's bound from one run with as many in/out canaries as draws, each with Laplace noise of its own."""
    coins = rng.random(draws) < 0.5
    scores = epsilon * coins + rng.laplace(size=draws)
    return one_run_audit(scores, coins, few_guesses(draws), epsilon, 0.0, TIGHT).bound


def identified(epsilon: float, draws: int, rng: Rng) -> Bound:
    """Two candidates at distance 1 on a line, guessed from a release with Laplace noise of scale 1 / epsilon."""
    second = rng.random(draws) < 0.5
    guessed = epsilon * second + rng.laplace(size=draws) > epsilon / 2
    return identification_replace_one(int((guessed == second).sum()), draws, 2, 0.0, TIGHT)


def identified_response(epsilon: float, draws: int, rng: Rng) -> Bound:
    """N-ary randomized response, for which the bound is attained: the truth with odds e^epsilon to each other candidate."""
    right = rng.random(draws) < np.exp(epsilon) / (np.exp(epsilon) + CANDIDATES - 1)
    return identification_replace_one(int(right.sum()), draws, CANDIDATES, 0.0, TIGHT)


def uncorrected_maximum(epsilon: float, draws: int, rng: Rng) -> Bound:
    """Mistaken: the highest Clopper-Pearson bound over 1,001 thresholds, chosen and tested on the same draws."""
    tried = Worlds(LAPLACE, epsilon).quantile_counts(draws, quantile_places(2 * draws - 1, 1001), rng)
    below = np.stack([draws - tried.below_out, tried.below_in])
    rates = np.where(below < draws, special.betainccinv(below + 1, np.maximum(draws - below, 1), 0.025), 1.0)
    with np.errstate(divide="ignore"):
        return Bound(max(0.0, float((np.log(1 - rates) - np.log(rates[::-1])).max())), 0.05)


def cases() -> list[KnownEpsilon]:
    """Every estimator where it is valid, and the mistaken one."""
    mechanisms = []
    for epsilon, of in ((0.0, "nothing released"), (1.0, "Laplace noise")):
        mechanisms += [
            KnownEpsilon(f"Clopper-Pearson, split half: {of}", epsilon, partial(split_half, epsilon)),
            KnownEpsilon(f"one run (99 %): {of}", epsilon, partial(one_run, epsilon)),
            KnownEpsilon(f"identification of 2 (99 %): {of}", epsilon, partial(identified, epsilon)),
            KnownEpsilon(
                f"mistaken: maximum over thresholds: {of}", epsilon, partial(uncorrected_maximum, epsilon), True
            ),
        ]
    for epsilon, of in ((0.0, "guesses at random"), (1.0, "randomized response")):
        name = f"identification of {CANDIDATES} (99 %): {of}"
        mechanisms.append(KnownEpsilon(name, epsilon, partial(identified_response, epsilon)))
    for mu, of in ((0.0, "nothing released"), (1.0, "Gaussian noise")):
        mechanisms.append(KnownEpsilon(f"GDP, split half: {of}", gdp_epsilon(mu, DELTA), partial(gaussian, mu)))
    return mechanisms


def violations(claimed: float, share: float, runs: int, rng: Rng) -> int:
    """Runs that call VIOLATION where the noise is this share of what the claimed epsilon needs."""
    worlds = Worlds(NORMAL, 1 / (share * noise_multiplier(claimed, DELTA)))
    n_violations = 0
    for _ in range(runs):
        counts = worlds.held_out_counts(EPSILON_DRAWS, DELTA, rng)
        p = violation(lambda error, counts=counts: counting_bound(counts, DELTA, error), claimed)  # type: ignore[misc]
        n_violations += p <= LEVEL
    return n_violations


def epsilon_checks(runs: int, draws: int, rng: Rng) -> tuple[list[Check], list[Check]]:
    """Runs above the truth, by estimator; and runs that call VIOLATION. Each check draws from a stream of its own."""
    allowed = int(ALARMS * runs)
    above = [
        Check(
            f"{case.name}, epsilon {case.truth:.3g}",
            case.alarms(runs, draws, rng.spawn(1)[0]),
            runs,
            allowed,
            case.mistaken,
        )
        for case in cases()
    ]
    called = []
    for claimed in CLAIMS:
        true = gdp_epsilon(2 / noise_multiplier(claimed, DELTA), DELTA)
        halved, right = (violations(claimed, share, runs, rng.spawn(1)[0]) for share in (0.5, 1.0))
        called += [
            Check(
                f"noise halved: claimed {claimed:g}, true {true:.3g}", halved, runs, int(FOUND * runs), mistaken=True
            ),
            Check(f"noise as claimed: {claimed:g}", right, runs, 0),
        ]
    return above, called
