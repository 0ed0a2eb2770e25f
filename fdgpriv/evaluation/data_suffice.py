"""Whether a run's data suffice to evaluate an adversary."""

from fdgpriv.evaluation.units import attacked_clients
from fdgpriv.federation.partition import Population
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.threat import Auxiliary, ThreatModel


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
