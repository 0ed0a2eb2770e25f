"""Epsilon of Gaussian noise on Poisson-sampled records (DP-SGD), by Opacus' Renyi and PRV accountants.

Valid only where each record takes part in each step by an independent coin flip that the adversary does not see, and for
add/remove adjacency of records. Sampling K of N clients is not Poisson sampling, and the server, or whoever receives a
style, sees who took part: use `accounting` there.
Reference: Mironov, Talwar and Zhang, arXiv 1908.10530 (Renyi); Gopi, Lee and Wutschitz, NeurIPS 2021 (PRV).
"""

from typing import Any, Literal

import numpy as np

from fdgpriv.privacy.budget import positive, probability, whole
from fdgpriv.utils.warnings_filter import warnings_ignored

Accountant = Literal["rdp", "prv"]

ORDERS = (*map(float, range(2, 65)), *(2.0**k for k in range(7, 11)))  # of the Renyi search for z
_PRV_ERROR = 0.01  # largest excess of the PRV accountant's epsilon, in nats
_PRV_LARGEST = 100  # its exponentials overflow where losses reach 709 nats


def rdp_epsilon(noise_multiplier: float, delta: float, steps: int = 1, sample_rate: float = 1.0) -> float:
    """An upper bound on epsilon, in nats, by Renyi accounting; at least `gdp_epsilon` for sample_rate 1.

    Args:
        noise_multiplier: z, noise standard deviation over the norm that one record may add.
        delta: In (0, 1).
        steps: Number of noisy sums that are released.
        sample_rate: Probability in (0, 1] that a record takes part in a step.
    """
    from opacus.accountants.analysis import rdp  # imported here since Opacus imports torch

    _check(noise_multiplier, delta, sample_rate)
    orders = [1.01, 1.02, 1.05, *(1 + x / 10 for x in range(1, 100)), *map(float, range(11, 64))]
    orders += [float(2**k) for k in range(6, 13)]
    spent = rdp.compute_rdp(
        q=sample_rate, noise_multiplier=noise_multiplier, steps=whole("steps", steps), orders=orders
    )
    with warnings_ignored(UserWarning):  # "expand the orders": the bound is valid at every order
        epsilon, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return max(0.0, float(epsilon))


def prv_epsilon(noise_multiplier: float, delta: float, steps: int = 1, sample_rate: float = 1.0) -> float:
    """An upper bound on epsilon, in nats, at most 0.02 above the truth, by numerical composition; arguments as above.

    Example: 1.838 for z = 1, delta = 1e-5, 1,000 steps and sample_rate 0.01, where the Renyi bound is 2.10.
    """
    from opacus.accountants import PRVAccountant

    _check(noise_multiplier, delta, sample_rate)
    accountant = PRVAccountant()
    accountant.history = [(noise_multiplier, sample_rate, whole("steps", steps))]
    with np.errstate(divide="ignore"), warnings_ignored(UserWarning):  # log(1 - sample_rate); "expand the orders"
        return max(0.0, float(accountant.get_epsilon(delta, eps_error=_PRV_ERROR)))


def poisson_noise_multiplier(
    epsilon: float, delta: float, steps: int, sample_rate: float, accountant: Accountant = "prv"
) -> float:
    """The z for which all steps together are (epsilon, delta)-DP by this accountant, nearly the least.

    The epsilon that is spent lies at most 0.01 below the target; by ``prv`` 1 % of it where that is less. The Renyi orders
    of ``rdp`` are whole numbers: z is at most 1 % above that of Opacus' default orders for epsilon up to 20, and found 20
    times faster.

    Args:
        epsilon: Of all steps together, > 0; by ``prv`` > 0.02: the accountant's own error makes less unattainable.
        delta: In (0, 1).
        steps: Number of noisy sums that are released.
        sample_rate: Probability in (0, 1] that a record takes part in a step.
        accountant: Opacus' Renyi accountant, or the tighter and slower one by numerical composition.
    """
    from opacus.accountants.utils import get_noise_multiplier

    _check(1.0, delta, sample_rate)
    _check_reachable(positive("epsilon", epsilon), delta, accountant)
    prv = {"epsilon_tolerance": min(0.01 * epsilon, 0.01), "eps_error": _PRV_ERROR}
    options: dict[str, Any] = prv if accountant == "prv" else {"alphas": ORDERS}
    with np.errstate(divide="ignore"), warnings_ignored(UserWarning):
        try:
            noise_multiplier = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=sample_rate,
                steps=whole("steps", steps),
                accountant=accountant,
                **options,
            )
        except ValueError as error:
            raise ValueError(
                f"want a budget that noise reaches by Opacus' {accountant.upper()} accountant, got epsilon {epsilon:g} and "
                f"delta {delta:g} ({error}); try a larger delta, or accountant=rdp"
            ) from error
    return float(noise_multiplier)


def least_rdp_epsilon(delta: float) -> float:
    """The smallest epsilon of `poisson_noise_multiplier` by ``rdp``: the limit of the Renyi bound as noise grows."""
    orders = np.array(ORDERS)
    return max(0.0, float(np.min(np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1))))


def _check_reachable(epsilon: float, delta: float, accountant: Accountant) -> None:
    """Raises ValueError if no noise reaches this budget by the accountant, or its integrals overflow."""
    lowest = 2 * _PRV_ERROR if accountant == "prv" else least_rdp_epsilon(delta)
    if epsilon <= lowest:
        raise ValueError(
            f"want epsilon > {lowest:.3g} at delta {delta:g}, since no noise reaches less by Opacus' {accountant.upper()} "
            f"accountant; got {epsilon:g}"
        )
    if accountant == "prv" and epsilon > _PRV_LARGEST:
        raise ValueError(f"want epsilon of at most {_PRV_LARGEST} by Opacus' PRV accountant, got {epsilon:g}; use rdp")


def _check(noise_multiplier: float, delta: float, sample_rate: float) -> None:
    positive("noise_multiplier", noise_multiplier)
    probability(delta)
    if not 0 < sample_rate <= 1:
        raise ValueError(f"want sample_rate in (0, 1], got {sample_rate}")
