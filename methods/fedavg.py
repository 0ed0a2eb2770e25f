"""FedAvg: clients train, the server averages (McMahan et al., AISTATS 2017). The reference of every audit."""

from dataclasses import dataclass

from ._averaging import FederatedAveraging


@dataclass(frozen=True)
class FedAvg(FederatedAveraging):
    """Federated averaging; the defaults are the baseline's settings in StableFDG's experiments."""
