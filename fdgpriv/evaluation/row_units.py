"""Means of an attack's scores with their intervals, of all clients and of federated and shadow clients apart."""

from collections.abc import Sequence

import numpy as np

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.scores import Scores
from fdgpriv.results.attack_finding import Units
from fdgpriv.statistics.interval import clopper_pearson, mean_interval
from fdgpriv.statistics.measured import Direction, Measured


def measured_scores(attack: AttackScores, values: Sequence[float], scores: Scores) -> Measured:
    """The mean of some scores of the headline metric with its interval over units."""
    return interval(values, scores, attack.direction, attack.bounds)


def interval(
    values: Sequence[float], scores: Scores, direction: Direction, bounds: tuple[float, float] | None
) -> Measured:
    """The mean with its interval: exact where each unit has one 0 or 1, else by Student's t over units, cut to the bounds."""
    if set(values) <= {0.0, 1.0} and len(set(scores.units)) == len(values) > 0:
        found = clopper_pearson(int(sum(values)), len(values))
    else:
        found = mean_interval(np.asarray(values), np.asarray(scores.units))
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
            found[name] = measured_scores(attack, values, Scores(units=units))
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
