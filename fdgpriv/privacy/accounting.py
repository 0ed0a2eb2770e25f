"""Epsilon proved: Gaussian noise of z times the sensitivity, composed exactly as Gaussian DP.

One release with noise of standard deviation z * Delta is mu-GDP with mu = 1/z; R releases have mu = sqrt(R)/z, and over
several artifacts mu^2 adds. No amplification by sampling is taken: whoever receives a style sees who took part.
Reference: Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022.
"""

import math

from scipy import optimize, special

from fdgpriv.utils.warnings_filter import warnings_ignored


def gdp_delta(epsilon: float, mu: float) -> float:
    """delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) of a mu-GDP mechanism, in [0, 1); 0 at mu = 0."""
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"want epsilon >= 0, got {epsilon}")
    if mu == 0:
        return 0.0
    _positive("mu", mu)
    large = float(special.log_ndtr(-epsilon / mu + mu / 2))
    ratio = epsilon + float(special.log_ndtr(-epsilon / mu - mu / 2)) - large  # in logs: e^eps may overflow
    return math.exp(large) * -math.expm1(min(ratio, 0.0))


def gdp_epsilon(mu: float, delta: float) -> float:
    """The least epsilon, in nats, for which a mu-GDP mechanism (mu >= 0) is (epsilon, delta)-DP: mu = 1, 1e-5: 4.377."""
    _delta(delta)
    if gdp_delta(0.0, mu) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * 40 + 1  # beyond 40 standard deviations any delta above 1e-300 is met
    root = float(optimize.brentq(lambda eps: gdp_delta(eps, mu) - delta, 0.0, high, xtol=1e-12, rtol=1e-13))
    return root if gdp_delta(root, mu) <= delta else root * (1 + 1e-12) + 1e-12


def noise_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """The least z for which R releases with noise z * Delta are (epsilon, delta)-DP, exactly by GDP.

    Args:
        epsilon: Over all releases together, > 0.
        releases: R. A style sent in every round is R releases, not one.
    """
    _positive("epsilon", epsilon)
    _delta(delta)
    root_r = math.sqrt(_releases(releases))
    low, high = 1e-12, 1.0
    while gdp_delta(epsilon, high) < delta:
        high *= 2
    mu = float(optimize.brentq(lambda m: gdp_delta(epsilon, m) - delta, low, high, xtol=1e-14, rtol=1e-13))
    while gdp_delta(epsilon, mu) > delta:
        mu *= 1 - 1e-12
    return root_r / mu


def rdp_epsilon(noise_multiplier: float, delta: float, releases: int = 1, sample_rate: float = 1.0) -> float:
    """A second, looser epsilon by Opacus' Renyi accountant, at least `gdp_epsilon` where sample_rate is 1.

    Args:
        sample_rate: Only for *Poisson* sampling hidden from the adversary, with add/remove adjacency. Choosing K of N
            clients is no Poisson sampling, and a server sees whom it chose: then it is 1.
    """
    from opacus.accountants.analysis import rdp  # here, for Opacus brings torch, and nothing else of this file needs it

    _positive("noise_multiplier", noise_multiplier)
    _delta(delta)
    if not 0 < sample_rate <= 1:
        raise ValueError(f"want sample_rate in (0, 1], got {sample_rate}")
    orders = [1.01, 1.02, 1.05, *(1 + x / 10 for x in range(1, 100)), *map(float, range(11, 64))]
    orders += [float(2**k) for k in range(6, 13)]
    spent = rdp.compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=_releases(releases), orders=orders)
    with warnings_ignored(UserWarning):  # "expand the orders": the bound holds at any of them
        epsilon, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return max(0.0, float(epsilon))


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"want {name} > 0 and finite, got {value}")
    return value


def _delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"want delta in (0, 1) (Gaussian noise gives no finite epsilon at delta = 0), got {delta}")


def _releases(releases: int) -> int:
    if releases < 1 or releases != int(releases):
        raise ValueError(f"want releases a whole number >= 1, got {releases}")
    return int(releases)
