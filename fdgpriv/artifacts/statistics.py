"""Artifacts with summary statistics of a client's data: counts, label shares, accuracies, embeddings, latents."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import MAX_COUNT, Artifact, out_of_range

METRICS = ("loss", "accuracy")
_ROUNDING = 1e-4  # tolerance of the sum of label shares in single precision


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleCount(Artifact):
    """Number of a client's training samples, for weighted averages: () int64."""

    kind: ClassVar[str] = "sample_count"
    equals: ClassVar[tuple[str, ...]] = ("size",)

    count: Tensor

    def __post_init__(self) -> None:
        if self.count.shape != () or self.count.dtype != torch.int64:
            raise ValueError(f"want count () int64, got {tuple(self.count.shape)} {self.count.dtype}")

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        yield from out_of_range("count", self.count, 1, MAX_COUNT)


@dataclass(frozen=True, eq=False, kw_only=True)
class ValidationMetrics(Artifact):
    """Accuracy of a received model on a client's held-out data: () in [0, 1]."""

    kind: ClassVar[str] = "validation_metrics"

    accuracy: Tensor

    def __post_init__(self) -> None:
        if self.accuracy.shape != () or self.accuracy.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"want accuracy () float32 or float64, got {tuple(self.accuracy.shape)} {self.accuracy.dtype}"
            )

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        yield from out_of_range("accuracy", self.accuracy, 0, 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelEvaluation(Artifact):
    """One metric of one model on a client's held-out data: () float32.

    Attributes:
        value: A mean cross-entropy in nats, or an accuracy in [0, 1].
        metric: ``loss`` or ``accuracy``.
        trained: Whether the model is the one that the client has trained in this round; else the one that it received.
    """

    kind: ClassVar[str] = "model_evaluation"

    value: Tensor
    metric: str
    trained: bool

    def __post_init__(self) -> None:
        if self.value.shape != () or self.value.dtype != torch.float32:
            raise ValueError(f"want value () float32, got {tuple(self.value.shape)} {self.value.dtype}")
        if self.metric not in METRICS:
            raise ValueError(f"want metric to be {' or '.join(METRICS)}, got {self.metric!r}")

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        yield from out_of_range("value", self.value, 0, 1 if self.metric == "accuracy" else None)


@dataclass(frozen=True, eq=False, kw_only=True)
class ValidationHistory(Artifact):
    """One client's metrics of T received models on its held-out data, (T,) float64; assembled by the evaluator, never sent."""

    kind: ClassVar[str] = "validation_history"

    values: Tensor

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.dtype != torch.float64:
            raise ValueError(f"want values (T,) float64, got {tuple(self.values.shape)} {self.values.dtype}")


@dataclass(frozen=True, eq=False, kw_only=True)
class TranslatedLatents(Artifact):
    """Moments (2p,) of public latents translated for one client, minus the mean over clients.

    First p means, then p standard deviations; computed by the evaluator, never sent.
    """

    kind: ClassVar[str] = "translated_latents"

    moments: Tensor

    def __post_init__(self) -> None:
        if self.moments.ndim != 1 or len(self.moments) % 2:
            raise ValueError(f"want moments (2p,), got {tuple(self.moments.shape)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class ClientEmbedding(Artifact):
    """One client's input vector of a hypernetwork, computed from its data: (e,)."""

    kind: ClassVar[str] = "client_embedding"

    vector: Tensor

    def __post_init__(self) -> None:
        if self.vector.ndim != 1:
            raise ValueError(f"want vector (e,), got {tuple(self.vector.shape)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelMarginal(Artifact):
    """Label distribution of a client's images: (K,) float32, sums to 1."""

    kind: ClassVar[str] = "label_marginal"
    equals: ClassVar[tuple[str, ...]] = ("labels",)

    share: Tensor

    def __post_init__(self) -> None:
        if self.share.ndim != 1 or self.share.dtype != torch.float32:
            raise ValueError(f"want share (K,) float32, got {tuple(self.share.shape)} {self.share.dtype}")

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        yield from out_of_range("share", self.share, 0, 1)
        total = float(self.share.double().sum())
        if abs(total - 1) > _ROUNDING:
            yield f"want share to sum to 1, got {total:g}"
