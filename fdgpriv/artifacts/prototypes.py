"""Prototype artifacts: mean features of a client's classes, and the cluster prototypes that a server makes of them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassPrototypes(Artifact):
    """Mean features of a client's images by class, of the classes that it has.

    Attributes:
        features: (K, D) float32 by class; zeros for a class that the client does not have, which is not sent.
    """

    kind: ClassVar[str] = "class_prototypes"
    aggregated_from: ClassVar[str] = "class_prototypes"

    features: Tensor

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.features.dtype != torch.float32:
            raise ValueError(f"want features (K, D) float32, got {tuple(self.features.shape)} {self.features.dtype}")

    @property
    def present(self) -> Tensor:
        """(K,): the classes that have a prototype."""
        return self.features.any(dim=1)

    @property
    def nbytes(self) -> int:
        """Bytes of the prototypes of the classes that the client has."""
        return int(self.present.sum()) * self.features.shape[1] * self.features.element_size()


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterPrototypes(Artifact):
    """The server's prototypes of all classes: the means of clusters of its clients' prototypes.

    Attributes:
        features: (M, D) float32.
        labels: (M,) int64, the class of each.
    """

    kind: ClassVar[str] = "cluster_prototypes"
    aggregated_from: ClassVar[str] = ClassPrototypes.kind

    features: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1] or self.labels.dtype != torch.int64:
            raise ValueError(
                "want features (M, D) and labels (M,) int64, "
                f"got {tuple(self.features.shape)} and {tuple(self.labels.shape)} {self.labels.dtype}"
            )
