"""Checks whether simulated clients can stand for the attacked ones: numbers of public images, and what both share."""

from collections.abc import Sequence

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Domain
from fdgpriv.federation.partition import Population

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
    return (
        f"{few}: {', '.join(weighing)} can find leaks, but not that there is none; more clients, each with fewer images, or "
        "more public images would help"
    )
