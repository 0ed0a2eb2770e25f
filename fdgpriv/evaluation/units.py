"""Which clients and shadow clients are attacked, and whose images the candidates are."""

from collections import Counter

from fdgpriv.evaluation.candidates import CandidatePool
from fdgpriv.federation.partition import Population
from fdgpriv.federation.reserve import FEW
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator


def attacked_clients(population: Population, series: ArtifactSeries[Simulator]) -> tuple[str, ...]:
    """All clients that shared an artifact, and the shadow clients that would have, except where artifacts depend on who
    took part.

    Of artifacts that clients train, each domain has shadow clients only up to `FEW` units: each takes a training, and that
    starts from a model that has not been trained on the shadow client's images before, as it has on a client's.
    """
    if _of_those_who_took_part(series):
        return tuple(series.clients)
    units = Counter(population.main_domain(client) for client in series.clients)
    chosen = []
    for shadow in population.shadows:
        if shadow in series.withheld:
            continue
        domain = population.main_domain(shadow)
        if not series.trained or units[domain] < FEW:
            chosen.append(shadow)
            units[domain] += 1
    return (*series.clients, *chosen)


def candidate_pool(population: Population, series: ArtifactSeries[Simulator]) -> CandidatePool:
    """The images of all clients that shared an artifact, and of all shadow clients, attacked or not, where these may be."""
    shadows = () if _of_those_who_took_part(series) else population.shadows
    return CandidatePool(population, (*series.clients, *shadows))


def _of_those_who_took_part(series: ArtifactSeries[Simulator]) -> bool:
    return series.is_global or series.needs_all_clients
