"""Checks whether simulated clients can stand for the attacked ones: numbers of public images, and what both share."""

from collections.abc import Sequence

import torch
from scipy import special
from torch import Tensor, nn

from fdgpriv.adversary import Observation
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Domain
from fdgpriv.evaluation.trial import ScoredObservation
from fdgpriv.federation.partition import Population
from fdgpriv.simulation.simulator import Simulator

_IMAGES = 16  # of each domain, on which the losses of models are compared
_MIN_LOSS = 1e-4
_MIN_SIMULATED = 4  # simulated clients, for a range of their figures
_COVERAGE = 0.99  # share of simulated clients in that range
_TOLERANCE = 0.05  # of a cosine, a logarithm or a distance, within which clients are alike in any case
_NAMED = 3  # attacks that a note names
MIN_PUBLIC = 2  # public images of a domain for each image of a typical client


def few_public_images(domains: Sequence[Domain], typical: int) -> str | None:
    """Why clients cannot be simulated from these public images, in one clause; None if they can.

    Simulated clients of the same domain have most of their images in common where these are few, so that they differ less
    than the attacked clients do.

    Args:
        domains: The public images by domain.
        typical: The typical number of images of a client.
    """
    smallest = min(domains, key=len, default=None)
    if smallest is None or len(smallest) >= MIN_PUBLIC * typical:
        return None
    return (
        f"{len(smallest):,} public images of {smallest.name} are too few to simulate clients of {typical:,} images, want at "
        f"least {MIN_PUBLIC * typical:,}"
    )


def few_public_images_note(population: Population, attacks: Sequence[Attack]) -> str | None:
    """A sentence on what cannot be answered because public images are few; None if they suffice for these attacks."""
    sizes = sorted(len(data) for data in population.clients.values())
    few = few_public_images(list(population.auxiliary.values()), sizes[len(sizes) // 2])
    weighing = [attack.name() for attack in attacks if any(task.weighed for task in attack.tasks)]
    if few is None or not weighing:
        return None
    names = weighing if len(weighing) <= _NAMED else [*weighing[:_NAMED], f"{len(weighing) - _NAMED} more attacks"]
    return (
        f"{few}: {', '.join(names)} can find leaks, but not that there is none; more clients, each with fewer images, or "
        "more public images would help"
    )


def unlike_changes(
    simulator: Simulator,
    recorded: Sequence[ScoredObservation],
    simulated: Sequence[ScoredObservation],
    images: Sequence[Domain],
) -> str | None:
    """Why simulated clients' trained models are unlike the recorded ones, in one clause; None if they are alike.

    Compared are the cosine of each client's change with those of simulated clients of other domains, the size of the change,
    and the loss of its model on public images of other domains. Each figure's median over recorded clients should lie in the
    range of simulated clients. With one domain only, the others are all other simulated clients, and all images.

    Args:
        simulator: Simulates these artifacts.
        recorded: The recorded artifacts.
        simulated: The simulated ones.
        images: The adversary's public images by domain.
    """
    if not recorded or any(s.observation.received_model is None for s in (*recorded, *simulated)):
        return None
    one_domain = len({scored.truth.domain for scored in simulated}) < 2
    vectors, directions = [], []
    for group in (recorded, simulated):
        rows = torch.stack([_vector(simulator, scored.observation) for scored in group])
        vectors.append(rows)
        directions.append(nn.functional.normalize(rows, dim=1))
    domains = [torch.tensor([scored.truth.domain for scored in group]) for group in (recorded, simulated)]
    cosines, losses = [], []
    for group, of_group, unit in zip((recorded, simulated), domains, directions, strict=True):
        others = torch.ones(len(group), len(simulated)) if one_domain else (of_group[:, None] != domains[1]).float()
        if one_domain and group is simulated:
            others.fill_diagonal_(0)
        cosines.append((unit @ directions[1].T * others).sum(1) / others.sum(1).clamp_min(1))
        losses.append(torch.tensor([_log_loss(simulator, scored, images, one_domain) for scored in group]))
    sizes = [rows.norm(dim=1).clamp_min(_MIN_LOSS).log() for rows in vectors]
    return (
        outside("cosine of changes with those of simulated clients", *cosines, two_sided=False)
        or outside("logarithm of the size of changes", *sizes)
        or outside("logarithm of the loss on public images", *losses)
    )


def unlike_shares(recorded: Sequence[Tensor], simulated: Sequence[Tensor]) -> str | None:
    """Why inferred label shares (K,) of recorded clients are unlike those of simulated ones; None if they are alike.

    Compared is their L1 distance from equal shares.
    """
    if not recorded or not simulated:
        return None
    distances = [
        (torch.stack(list(shares)).double() - 1 / len(shares[0])).abs().sum(1) for shares in (recorded, simulated)
    ]
    return outside("distance of inferred label shares from equal ones", *distances)


def outside(figure: str, recorded: Tensor, simulated: Tensor, *, two_sided: bool = True) -> str | None:
    """A clause if the median of recorded clients' figures (M,) is outside the range of simulated clients' (N,); else None.

    None as well if there are too few for a range, or one is not finite.

    The range is Student's prediction interval, in which another simulated client lies with probability 0.99; without
    `two_sided`, only a median below it counts.
    """
    count = len(simulated)
    if count < _MIN_SIMULATED or not torch.cat([recorded, simulated]).isfinite().all():
        return None
    spread = float(special.stdtrit(count - 1, (1 + _COVERAGE) / 2) * simulated.std() * (1 + 1 / count) ** 0.5)
    half = max(_TOLERANCE, spread)
    low, high, median = float(simulated.mean()) - half, float(simulated.mean()) + half, float(recorded.median())
    if low <= median and (median <= high or not two_sided):
        return None
    return f"they are not like the recorded ones: the {figure} is {median:.3g}, of 99 % of simulated clients " + (
        f"between {low:.3g} and {high:.3g}" if two_sided else f"above {low:.3g}"
    )


def _vector(simulator: Simulator, observation: Observation) -> Tensor:
    return simulator.vector(observation.artifact, observation.received_model).double()


@torch.no_grad()
def _log_loss(simulator: Simulator, scored: ScoredObservation, images: Sequence[Domain], one_domain: bool) -> float:
    """The logarithm of the mean cross-entropy of the artifact's model on public images of other domains; 0 without a model."""
    model = simulator.model_of(scored.observation.artifact, scored.observation.received_model)
    parts = [part.part(0, _IMAGES) for d, part in enumerate(images) if one_domain or d != scored.truth.domain]
    if model is None or not parts:
        return 0.0
    model.eval()
    losses = [nn.functional.cross_entropy(model(part.images), part.labels) for part in parts]
    return float(torch.stack(losses).mean().clamp_min(_MIN_LOSS).log())
