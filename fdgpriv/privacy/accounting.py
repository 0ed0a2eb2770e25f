"""Proved epsilon of Gaussian noise, by exact composition in Gaussian DP, and pure epsilon of Laplace noise (delta = 0).

One release with Gaussian noise of standard deviation z * Delta is mu-GDP with mu = 1/z; R releases have mu = sqrt(R)/z, and
over several artifacts mu^2 adds. Delta is the L2 sensitivity for the guarantee's adjacency. No amplification by sampling is
used: recipients of styles see who participates (`poisson` has it, where it applies).
References: Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022; Dwork, McSherry, Nissim and Smith, "Calibrating
noise to sensitivity in private data analysis", TCC 2006.
"""

import math

from scipy import optimize, special

from fdgpriv.privacy.budget import positive, probability, whole


def gdp_delta(epsilon: float, mu: float) -> float:
    """delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) of a mu-GDP mechanism, in [0, 1); 0 at mu = 0."""
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"want epsilon >= 0, got {epsilon}")
    if mu == 0:
        return 0.0
    positive("mu", mu)
    large = float(special.log_ndtr(-epsilon / mu + mu / 2))
    if large == -math.inf:
        return 0.0
    ratio = epsilon + float(special.log_ndtr(-epsilon / mu - mu / 2)) - large  # logarithms, since e^eps may overflow
    return math.exp(large) * -math.expm1(min(ratio, 0.0))


def gdp_epsilon(mu: float, delta: float) -> float:
    """The least epsilon, in nats, for which a mu-GDP mechanism (mu >= 0) is (epsilon, delta)-DP.

    Example: 4.377 for mu = 1 and delta = 1e-5.
    """
    probability(delta)
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
    positive("epsilon", epsilon)
    probability(delta)
    root_r = math.sqrt(whole("releases", releases))
    low, high = 1e-12, 1.0
    while gdp_delta(epsilon, high) < delta:
        high *= 2
    mu = float(optimize.brentq(lambda m: gdp_delta(epsilon, m) - delta, low, high, xtol=1e-14, rtol=1e-13))
    while gdp_delta(epsilon, mu) > delta:
        mu *= 1 - 1e-12
    return root_r / mu


def laplace_scale(epsilon: float, sensitivity: float, releases: int = 1) -> float:
    """b = R Delta / epsilon: the least scale for which R releases with Laplace noise on each entry are (epsilon, 0)-DP.

    R releases together have R times the epsilon of one, exactly.

    Args:
        epsilon: Of all releases together, in nats.
        sensitivity: Delta > 0 in the **L1** norm; `sensitivity.l1_of_l2` bounds it where only L2 is known.
        releases: R.

    Returns: the mean absolute value of the noise; its standard deviation is sqrt(2) b.
    """
    return whole("releases", releases) * positive("sensitivity", sensitivity) / positive("epsilon", epsilon)
