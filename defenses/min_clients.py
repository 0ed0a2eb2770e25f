"""Minimum group size: statistics of too few images or clients are not released."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import TensorState
from fdgpriv.artifacts.statistics import ClientEmbedding, SampleCount
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.utils.fields import PositiveInt


@dataclass(frozen=True)
class MinClients(Defense):
    """A client with fewer than `samples` images withholds its statistics; none are relayed, nor is what the server makes of
    them, before `clients` shared theirs.

    Statistics are all that clients share except tensors of a network. Methods that share one statistic per image are
    refused. A threshold protects small groups only; differences of two releases can still single out one image.

    Attributes:
        samples: Least number of images behind a client's statistics.
        clients: Least number of clients that have shared one before the server sends any, or what it makes of them.
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
        if ClientEmbedding.kind in sharing.uploads:
            raise ValueError(
                f"min_clients: not applicable to {sharing.method}, whose server needs each client's client_embedding"
            )
        return self

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        enough = sum(size >= self.samples for size in sizes.values())
        if enough < self.clients:
            raise ValueError(
                f"min_clients: want at least {self.clients} clients (clients) of at least {self.samples} images (samples), "
                f"got {enough} of {len(sizes)}: nothing would be released"
            )

    def withholds(self, artifact: Artifact, samples: int) -> bool:
        return _is_statistic(type(artifact)) and samples < self.samples

    def can_withhold(self, kind: str) -> bool:
        return _is_statistic(Artifact.kinds[kind])

    def relayed(self, artifact: Artifact, latest: Mapping[str, Artifact]) -> Artifact:
        if _is_statistic(type(artifact)) and len(latest) < self.clients:
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
