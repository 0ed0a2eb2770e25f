"""Settings of a federation: number of clients, data partition, network and image size."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from fdgpriv.registry import split
from fdgpriv.utils.suggestions import did_you_mean

GIVEN = "given"  # the partition of a dataset that is divided among clients
FLOWER = "flwr"  # a partitioner of flwr-datasets
PARTITIONS = ("single", "dirichlet", "heterogeneity", "domains", GIVEN, FLOWER)  # kinds
KEEP = ("last", "ends", "all", "small")  # rules for the model states that a transcript stores


@dataclass(frozen=True)
class Setup:
    """A possibly incomplete set-up; None means unspecified.

    Attributes:
        clients: Number of clients.
        clients_per_domain: Alternatively, number of clients per source domain.
        partition: Specification of the data partition, for `partition.partitioner`.
        backbone: The network, one of `fdgpriv.models.names.BACKBONES` or ``timm:NAME``.
        image_size: Side of the images, in pixels; built-in datasets have a fixed size.
        held_out: Share of its images that each client holds out for validation.
    """

    clients: int | None = None
    clients_per_domain: int | None = None
    partition: str | None = None
    backbone: str | None = None
    image_size: int | None = None
    held_out: float | None = None

    def over(self, other: "Setup") -> "Setup":
        """This set-up with unspecified fields taken from `other`; the two numbers of clients count as one field."""
        specified = {f.name: getattr(self, f.name) for f in fields(self)}
        merged = {name: getattr(other, name) if value is None else value for name, value in specified.items()}
        if self.clients is not None or self.clients_per_domain is not None:
            merged |= {"clients": self.clients, "clients_per_domain": self.clients_per_domain}
        return Setup(**merged)


@dataclass(frozen=True)
class Federated:
    """A complete set-up for one dataset.

    Attributes:
        clients, partition, backbone, image_size, held_out: As in `Setup`.
    """

    clients: int
    partition: str
    backbone: str
    image_size: int
    held_out: float

    def as_config(self) -> dict[str, Any]:
        """Its entry in results.json."""
        return asdict(self)


def partition_named(spec: str) -> tuple[str, float]:
    """The kind and the parameter of a partition specification; a ValueError lists the known ones.

    The parameter of ``single`` and ``given`` is 0, also that of ``flwr``, whose specification is checked by its package.
    """
    name, _, value = spec.partition(":")
    try:
        if spec in ("single", GIVEN):
            return name, 0.0
        if name == FLOWER and split(value)[0]:
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
        "want a partition of single, dirichlet:ALPHA (> 0), heterogeneity:LAMBDA (0 to 1), domains:D (>= 1), given, flwr:NAME; "
        f"got {spec!r}{'' if name in PARTITIONS else did_you_mean(name, PARTITIONS)}"
    )
