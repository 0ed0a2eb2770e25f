"""Which clients and shadow clients are units of evaluation."""

from collections import Counter

from fdgpriv.federation.partition import Population
from fdgpriv.federation.reserve import FEW
from fdgpriv.targets.simulator import Simulator
from fdgpriv.targets.target import Target


def attacked_clients(population: Population, target: Target[Simulator]) -> tuple[str, ...]:
    """All clients that shared an artifact, and the shadow clients, except where artifacts depend on who took part.

    Where an artifact takes a training, each domain has shadow clients only up to `FEW` units: they are expensive, and the
    model that they train has not been trained on their images before, as a client's has, so that they reveal more.
    """
    if target.is_global or target.joint:
        return tuple(target.clients)
    units = Counter(population.main_domain(client) for client in target.clients)
    chosen = []
    for shadow in population.shadows:
        domain = population.main_domain(shadow)
        if not target.expensive or units[domain] < FEW:
            chosen.append(shadow)
            units[domain] += 1
    return (*target.clients, *chosen)
