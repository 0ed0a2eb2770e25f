"""The federation that a method is trained in: how many clients, how images are dealt, which network, which image size."""

from dataclasses import asdict, dataclass, fields
from typing import Any

KEEP = ("ends", "all", "small")  # which model states a transcript keeps


@dataclass(frozen=True)
class Setup:
    """A federation's set-up; None where nothing is said.

    Attributes:
        clients: How many.
        clients_per_domain: Or how many for each source domain.
        partition: How images are dealt to them, as `partition.partitioner` reads it.
        backbone: The network, one of `fdgpriv.models.names.BACKBONES`.
        image_size: Side of the images, in pixels; embedded datasets have one size.
    """

    clients: int | None = None
    clients_per_domain: int | None = None
    partition: str | None = None
    backbone: str | None = None
    image_size: int | None = None

    def over(self, other: "Setup") -> "Setup":
        """This set-up, and where it says nothing what `other` says; `clients` and `clients_per_domain` are one thing."""
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        found = {name: getattr(other, name) if value is None else value for name, value in said.items()}
        if self.clients is not None or self.clients_per_domain is not None:
            found |= {"clients": self.clients, "clients_per_domain": self.clients_per_domain}
        return Setup(**found)


@dataclass(frozen=True)
class Federated:
    """A set-up with every value settled, for one dataset.

    Attributes:
        clients, partition, backbone, image_size: As in `Setup`.
    """

    clients: int
    partition: str
    backbone: str
    image_size: int

    def as_config(self) -> dict[str, Any]:
        """What results.json says of it."""
        return asdict(self)


def partition_named(spec: str) -> tuple[str, float]:
    """The kind and the parameter of a partition as the command line writes it; a ValueError lists the known ones.

    The parameter of ``single`` is 0.
    """
    name, _, value = spec.partition(":")
    try:
        if spec == "single":
            return name, 0.0
        if name == "dirichlet" and 0 < float(value) < float("inf"):
            return name, float(value)
        if name == "heterogeneity" and 0 <= float(value) <= 1:
            return name, float(value)
        if name == "domains" and int(value) >= 1:
            return name, int(value)
    except ValueError:
        pass
    raise ValueError(
        "want a partition of single, dirichlet:ALPHA (> 0), heterogeneity:LAMBDA (0 to 1), domains:D (>= 1); "
        f"got {spec!r}"
    )
