"""Kinds of artifact that are parts or companions of a model: a head, a translator, importances, statistics, marginals."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import Artifact, TensorState


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassifierHead(TensorState):
    """A classifier on latents: its linear layer, and the BatchNorm1d statistics and counter before it."""

    kind: ClassVar[str] = "classifier_head"


@dataclass(frozen=True, eq=False, kw_only=True)
class RepresentationTranslator(TensorState):
    """A network that gives one client's latents another client's distribution."""

    kind: ClassVar[str] = "representation_translator"


@dataclass(frozen=True, eq=False, kw_only=True)
class ImportanceWeights(TensorState):
    """How much each parameter of a model matters to its output: one float32 per parameter, no buffers."""

    kind: ClassVar[str] = "importance_weights"


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchNormStatistics(TensorState):
    """Running means, variances and counters of a model's BatchNorm layers, without its parameters."""

    kind: ClassVar[str] = "bn_statistics"


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelMarginal(Artifact):
    """Which share of a client's images is of each class: (K,) float32, sums to 1."""

    kind: ClassVar[str] = "label_marginal"

    share: Tensor

    def __post_init__(self) -> None:
        if self.share.ndim != 1 or self.share.dtype != torch.float32:
            raise ValueError(f"want share (K,) float32, got {tuple(self.share.shape)} {self.share.dtype}")
