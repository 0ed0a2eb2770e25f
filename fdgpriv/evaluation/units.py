"""Selects the clients and shadow clients that are attacked, and the images that may be membership candidates."""

from collections import Counter

from fdgpriv.evaluation.candidates import CandidatePool
from fdgpriv.federation.partition import Population
from fdgpriv.federation.reserve import MIN_UNITS
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.statistics.rule import ONE_DOMAIN
from fdgpriv.tasks.task import Task
from fdgpriv.threat import Auxiliary, ThreatModel


def attacked_clients(population: Population, series: ArtifactSeries[Simulator]) -> tuple[str, ...]:
    """All clients that shared an artifact, and shadow clients, unless artifacts depend on who took part.

    For artifacts that clients train, a domain gets shadow clients only until it has `MIN_UNITS` units: each of them costs a
    training, and starts from a model that was not trained on the shadow client's images, unlike a client's.
    """
    if _depends_on_participants(series):
        return tuple(series.clients)
    units = Counter(population.main_domain(client) for client in series.clients)
    chosen = []
    for shadow in population.shadows:
        if shadow in series.withheld:
            continue
        domain = population.main_domain(shadow)
        if not series.trained or units[domain] < MIN_UNITS:
            chosen.append(shadow)
            units[domain] += 1
    return (*series.clients, *chosen)


def candidate_pool(population: Population, series: ArtifactSeries[Simulator]) -> CandidatePool:
    """The images of all clients that shared an artifact, and of all shadow clients unless artifacts depend on who took part."""
    shadows = () if _depends_on_participants(series) else population.shadows
    return CandidatePool(population, (*series.clients, *shadows))


def _depends_on_participants(series: ArtifactSeries[Simulator]) -> bool:
    """Whether an artifact depends on which clients took part, so that a shadow client has none."""
    return series.is_global or series.needs_all_clients


def single_domain_reason(population: Population, series: ArtifactSeries[Simulator], task: Task) -> str | None:
    """Why the domain is no secret of these clients; None if it is, or another secret is asked for."""
    domains = {population.main_domain(client) for client in attacked_clients(population, series)}
    return ONE_DOMAIN if task.secret == "domain" and len(domains) == 1 else None


def insufficient_data_reason(
    population: Population, classes: int, series: ArtifactSeries[Simulator], threat: ThreatModel
) -> str | None:
    """Why the data do not suffice to evaluate this adversary; None if they do.

    Required are a second client, and more public images than classes in each domain that the adversary simulates from.
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
