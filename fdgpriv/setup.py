"""The federation that a method is trained in: how many clients, how images are dealt, which network, which image size."""

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Setup:
    """A federation's set-up; None where nothing is said.

    Attributes:
        clients: How many.
        clients_per_domain: Or how many for each source domain.
        partition: How images are dealt to them, as `partition.partitioner` reads it.
        backbone: The network, one of `backbone.BACKBONES`.
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
