"""Means of an attack's scores with their intervals, of all clients and of federated and shadow clients separately."""

from collections.abc import Sequence

import numpy as np

from fdgpriv.results.attack_finding import Units
from fdgpriv.statistics.interval import clopper_pearson, mean_interval
from fdgpriv.statistics.measured import Direction, Measured
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.trial_scores import TrialScores


def measured_scores(attack: AttackScores, role: str, scores: TrialScores) -> Measured:
    """The mean of the headline metric of the attack or of a control, with its interval over units."""
    shared = scores.shared_variance_of_mean.get(role, 0.0)
    return measured_mean(scores.headline[role], scores, attack.direction, attack.bounds, shared)


def measured_mean(
    values: Sequence[float],
    scores: TrialScores,
    direction: Direction,
    bounds: tuple[float, float] | None,
    shared_variance: float = 0.0,
) -> Measured:
    """The mean with its interval: exact if each unit has one 0 or 1, else by Student's t over units, clipped to the bounds.

    `shared_variance` is the variance of the mean from what units share.
    """
    if set(values) <= {0.0, 1.0} and len(set(scores.units)) == len(values) > 0 and not shared_variance:
        mean = clopper_pearson(int(sum(values)), len(values))
    else:
        mean = mean_interval(np.asarray(values), np.asarray(scores.units), shared_variance=shared_variance)
    ends = mean.ends
    if ends is not None and bounds is not None:
        ends = (max(bounds[0], ends[0]), min(bounds[1], ends[1]))
    return Measured(value=mean.value, ci95=ends, n=mean.n, direction=direction)


def by_participation(attack: AttackScores, scores: TrialScores) -> dict[str, Measured]:
    """The headline metric on federated clients and on shadow clients; empty if all clients are of one kind."""
    means = {}
    for name, is_shadow in (("federated", False), ("shadows", True)):
        trials = [i for i, client in enumerate(scores.clients) if (client in attack.shadows) is is_shadow]
        if 0 < len(trials) < len(scores.clients):
            part = TrialScores(
                units=[scores.units[i] for i in trials],
                headline={"attack": [scores.headline["attack"][i] for i in trials]},
                shared_variance_of_mean=scores.shared_variance_of_mean,  # of all clients: the same images are shared
            )
            means[name] = measured_scores(attack, "attack", part)
    return means


def counted_units(attack: AttackScores, scores: TrialScores) -> Units | None:
    """The units, with the numbers of federated and shadow clients among them; None without scores."""
    if not scores.units:
        return None
    clients = set(scores.clients)
    return Units(
        kind="client" if attack.size is None else "target",
        n=len(set(scores.units)),
        federated=len(clients - set(attack.shadows)),
        shadows=len(clients & set(attack.shadows)),
    )
