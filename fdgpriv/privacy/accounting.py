"""Proved epsilon of the Gaussian mechanism with noise multiplier z, by exact composition in Gaussian DP.

One release with noise of standard deviation z * Delta is mu-GDP with mu = 1/z; R releases have mu = sqrt(R)/z, and over
several artifacts mu^2 adds. No amplification by sampling is used: recipients of styles see who participates.
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
    ratio = epsilon + float(special.log_ndtr(-epsilon / mu - mu / 2)) - large  # logarithms, since e^eps may overflow
    return math.exp(large) * -math.expm1(min(ratio, 0.0))


def gdp_epsilon(mu: float, delta: float) -> float:
    """The least epsilon, in nats, for which a mu-GDP mechanism (mu >= 0) is (epsilon, delta)-DP.

    Example: 4.377 for mu = 1 and delta = 1e-5.
    """
    _delta(delta)
    if gdp_delta(0.0, mu) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * 40 + 1  # at 40 standard deviations delta is below 1e-300
    root = float(optimize.brentq(lambda eps: gdp_delta(eps, mu) - delta, 0.0, high, xtol=1e-12, rtol=1e-13))
    return root if gdp_delta(root, mu) <= delta else root * (1 + 1e-12) + 1e-12


def noise_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """The least z for which R releases with noise z * Delta are (epsilon, delta)-DP, exact by GDP.

    Args:
        epsilon: Of all releases together, > 0.
        delta: In (0, 1).
        releases: R, for example the number of rounds in which a style is sent.
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
    """A looser epsilon by Opacus' Renyi accountant, at least `gdp_epsilon` for sample_rate 1.

    Args:
        noise_multiplier: z.
        delta: In (0, 1).
        releases: R.
        sample_rate: Below 1 only for *Poisson* sampling hidden from the adversary, with add/remove adjacency. Sampling
            K of N clients is not Poisson sampling and is known to the server: use 1.
    """
    from opacus.accountants.analysis import rdp  # imported here since Opacus imports torch

    _positive("noise_multiplier", noise_multiplier)
    _delta(delta)
    if not 0 < sample_rate <= 1:
        raise ValueError(f"want sample_rate in (0, 1], got {sample_rate}")
    orders = [1.01, 1.02, 1.05, *(1 + x / 10 for x in range(1, 100)), *map(float, range(11, 64))]
    orders += [float(2**k) for k in range(6, 13)]
    spent = rdp.compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=_releases(releases), orders=orders)
    with warnings_ignored(UserWarning):  # "expand the orders": the bound is valid at every order
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
