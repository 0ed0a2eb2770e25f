"""Means of an attack's scores with their intervals, of all clients and of federated and shadow clients apart."""

from collections.abc import Sequence

import numpy as np

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.scores import Scores
from fdgpriv.results.attack_finding import Units
from fdgpriv.statistics.interval import clopper_pearson, mean_interval
from fdgpriv.statistics.measured import Direction, Measured


def measured_scores(attack: AttackScores, name: str, scores: Scores) -> Measured:
    """The mean score of the headline metric of the attack or of a control, by name, with its interval over units."""
    shared = scores.shared_variance_of_mean.get(name, 0.0)
    return interval(scores.headline[name], scores, attack.direction, attack.bounds, shared)


def interval(
    values: Sequence[float],
    scores: Scores,
    direction: Direction,
    bounds: tuple[float, float] | None,
    shared_variance: float = 0.0,
) -> Measured:
    """The mean with its interval: exact where each unit has one 0 or 1, else by Student's t over units, cut to the bounds.

    `shared_variance` is the variance of the mean from what units share.
    """
    if set(values) <= {0.0, 1.0} and len(set(scores.units)) == len(values) > 0 and not shared_variance:
        found = clopper_pearson(int(sum(values)), len(values))
    else:
        found = mean_interval(np.asarray(values), np.asarray(scores.units), shared_variance=shared_variance)
    ends = found.ends
    if ends is not None and bounds is not None:
        ends = (max(bounds[0], ends[0]), min(bounds[1], ends[1]))
    return Measured(value=found.value, ci95=ends, n=found.n, direction=direction)


def apart(attack: AttackScores, scores: Scores) -> dict[str, Measured]:
    """The headline metric on federated clients and on shadow clients alone; nothing where there is one kind."""
    found = {}
    for name, shadows in (("federated", False), ("shadows", True)):
        of = [i for i, client in enumerate(scores.clients) if (client in attack.shadows) is shadows]
        if 0 < len(of) < len(scores.clients):
            values, units = [scores.headline["attack"][i] for i in of], [scores.units[i] for i in of]
            shared = scores.shared_variance_of_mean  # of all clients: the same images are shared
            part = Scores(units=units, headline={"attack": values}, shared_variance_of_mean=shared)
            found[name] = measured_scores(attack, "attack", part)
    return found


def counted(attack: AttackScores, scores: Scores) -> Units | None:
    """The units, and how many clients among them are federated and shadow clients; None where there are none."""
    if not scores.units:
        return None
    clients = set(scores.clients)
    return Units(
        kind="client" if attack.size is None else "target",
        n=len(set(scores.units)),
        federated=len(clients - set(attack.shadows)),
        shadows=len(clients & set(attack.shadows)),
    )
