"""Kinds of artifact that are parts or companions of a model: a head, a translator, importances, updates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import STATISTICS, Artifact, ModelState, TensorState
from fdgpriv.style import Moments


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


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelUpdate(TensorState):
    """What a client's training took away from the model it was sent: sent minus trained, a pseudo-gradient."""

    kind: ClassVar[str] = "model_update"

    @classmethod
    def between(cls, sent: ModelState, trained: ModelState) -> "ModelUpdate":
        """The update of the client that was sent the one and trained it into the other."""
        state = {name: tensor - trained.state[name] for name, tensor in sent.state.items()}
        return cls(client=trained.client, round=trained.round, state=state)


@dataclass(frozen=True, eq=False, kw_only=True)
class AutoencoderState(TensorState):
    """The autoencoder that the server has its clients embed their data with: parameters, not a model of the task."""

    kind: ClassVar[str] = "autoencoder_state"


def running(state: Mapping[str, Tensor]) -> dict[str, Moments]:
    """By BatchNorm layer of which this state holds both, running mean and variance (C,)."""
    mean, variance, _ = STATISTICS
    layers = [name.removesuffix(f".{mean}") for name in state if name.endswith(f".{mean}")]
    return {
        name: (state[f"{name}.{mean}"], state[f"{name}.{variance}"]) for name in layers if f"{name}.{variance}" in state
    }
