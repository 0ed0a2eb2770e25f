"""Which clients and shadow clients are attacked, whether these suffice, and whose images the candidates are."""

from collections import Counter

from fdgpriv.evaluation.candidates import CandidatePool
from fdgpriv.federation.partition import Population
from fdgpriv.federation.reserve import FEW
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.threat import Auxiliary, ThreatModel


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


def insufficient_data_reason(
    population: Population, classes: int, series: ArtifactSeries[Simulator], threat: ThreatModel
) -> str | None:
    """Why the data do not suffice to evaluate this adversary; None where they do.

    Required are a second client, and more public images than classes in each domain that the adversary simulates
    from.
    """
    if len(attacked_clients(population, series)) < 2:
        return (
            f"only one client shared a {series.kind.replace('_', ' ')}, so there is no other client to compare it with"
        )
    domains = list(population.auxiliary.values())
    if threat.auxiliary is Auxiliary.OTHER_DOMAIN:
        domains.append(population.other_domain)
    for domain in domains:
        if len(domain) <= classes:
            return (
                f"to simulate artifacts, an adversary needs more public images of {domain.name} than there are classes "
                f"({classes}); there are {len(domain)}"
            )
    return None
