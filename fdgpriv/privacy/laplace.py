"""Pure epsilon (delta = 0) of Laplace noise, and of several releases by basic composition.

Reference: Dwork, McSherry, Nissim and Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006.
"""

import math

from fdgpriv.privacy.budget import positive, whole


def laplace_epsilon(scale: float, sensitivity: float, releases: int = 1) -> float:
    """R Delta / b: epsilon, in nats, of R releases with Laplace noise on each entry; R times that of one, exactly.

    Args:
        scale: b > 0, the mean absolute value of the noise (its standard deviation is sqrt(2) b).
        sensitivity: Delta > 0 in the **L1** norm; `sensitivity.l1_of_l2` bounds it where only L2 is known.
        releases: R.
    """
    return whole("releases", releases) * positive("sensitivity", sensitivity) / positive("scale", scale)


def laplace_scale(epsilon: float, sensitivity: float, releases: int = 1) -> float:
    """b = R Delta / epsilon: the least scale for which R releases together are (epsilon, 0)-DP; arguments as above."""
    return whole("releases", releases) * positive("sensitivity", sensitivity) / positive("epsilon", epsilon)


def composed_epsilon(*epsilons: float) -> float:
    """The sum: epsilon of several artifacts together, each with a pure epsilon > 0 (basic composition)."""
    return math.fsum(positive("epsilon", epsilon) for epsilon in epsilons)
