"""Minimum group size: statistics of too few images or clients are not released."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import TensorState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.utils.fields import PositiveInt


@dataclass(frozen=True)
class MinClients(Defense):
    """A client with fewer than `samples` images withholds its statistics; none are relayed before `clients` shared theirs.

    Statistics are all that clients share except tensors of a network. Methods that share one statistic per image are
    refused. A threshold protects small groups only; differences of two releases can still single out one image.

    Attributes:
        samples: Least number of images behind a client's statistics.
        clients: Least number of clients that have shared one before the server relays any.
    """

    samples: PositiveInt = 20
    clients: PositiveInt = 2

    def bound_to(self, sharing: Disclosure) -> Self:
        if not any(_is_statistic(Artifact.kinds[kind]) for kind in sharing.uploads):
            raise ValueError(f"min_clients: not applicable to {sharing.method}, which shares no statistics")
        single = [kind for kind in sharing.uploads if sharing.per_image(kind)]
        if single and self.samples > 1:
            raise ValueError(
                f"min_clients.samples: want 1 for {sharing.method}, which shares each image's {single[0]}; got {self.samples}"
            )
        return self

    def withholds(self, artifact: Artifact, samples: int) -> bool:
        return _is_statistic(type(artifact)) and samples < self.samples

    def relayed(self, artifact: Artifact, latest: Mapping[str, Artifact]) -> Artifact:
        if len(latest) < self.clients:
            raise ValueError(f"min_clients.clients: want at least {self.clients} that shared, got {len(latest)}")
        return artifact

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            f"No statistics of fewer than {self.samples} images, or of fewer than {self.clients} clients, are released. "
            "No finite epsilon: two releases that differ in one image single it out.",
        )


def _is_statistic(kind: type[Artifact]) -> bool:
    return not issubclass(kind, TensorState | SampleCount)
