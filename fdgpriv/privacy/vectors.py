"""Clients' artifacts as vectors of bounded norm, and back: what defenses clip, noise, quantise and sparsify.

Style statistics are vectors of moments: mean, std, and the squares mean^2 / scale and std^2 / scale if variances over
images are shared. Noise on a variance or on a std over all pixels would need a sensitivity of order 1 / sqrt(n); moments
are means over images, and the style is computed from the noised ones. Tensors of a network are their difference from the
model that the client received, which the server knows. Integer tensors (BatchNorm counters) stay as they are: they depend
on the number of images only, which is public, as are sample counts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import RULES, over_pixels
from fdgpriv.artifacts.parameters import (
    BatchNormStatistics,
    ClassifierHead,
    ImportanceWeights,
    ModelState,
    ModelUpdate,
    TensorState,
)
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.artifacts.statistics import ClientEmbedding, LabelMarginal, ModelEvaluation, ValidationMetrics
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleDraft, StyleStatistics
from fdgpriv.defense import SharedContent
from fdgpriv.privacy.sensitivity import mean_replace_one, whole_vector

HEAD = "head."  # prefix of a classifier head's tensors in the received model
SCALE = 2.0  # default divisor of squared moments

Norm = Literal[1, 2]


@dataclass(frozen=True, eq=False)
class VectorContext:
    """Public facts on which the conversion between artifacts and vectors depends.

    Attributes:
        received: The model that the client received last; None if none, then differences are from 0.
        scale: Divisor of squared moments.
        signed: Whether importance weights may be negative.
    """

    received: ModelState | None = None
    scale: float = SCALE
    signed: bool = False


@dataclass(frozen=True)
class VectorKind:
    """Conversion of one kind of artifact to vectors and back, with the bounds of their norms.

    Attributes:
        artifact: The kind.
        to_vector: (D,) float32 of an artifact.
        from_vector: The artifact of any finite vector (D,), with the public facts of a given one; its values are valid.
        clip: Default clipping norms C: L1, L2.
        diameter: Largest L1 and L2 distance of two artifacts, if bounded without clipping; else None.
    """

    artifact: type[Artifact]
    to_vector: Callable[[Any, VectorContext], Tensor]
    from_vector: Callable[[Tensor, Any, VectorContext], Artifact]
    clip: tuple[float, float]
    diameter: tuple[float, float] | None = None

    def bound(self, norm: Norm, clip: float | None) -> float:
        """The largest norm of a vector: `clip`, its default if None, or half the diameter of kinds that are not clipped."""
        if self.diameter is not None:
            return self.diameter[norm - 1] / 2
        return self.clip[norm - 1] if clip is None else clip

    def clipped(self, rows: Tensor, norm: Norm, clip: float | None) -> Tensor:
        """Rows (n, D), scaled down to the bound where they exceed it."""
        if self.diameter is not None:
            return rows
        length = rows.norm(p=norm, dim=1, keepdim=True).clamp_min(1e-12)
        inside: Tensor = rows * (self.bound(norm, clip) / length).clamp_max(1)
        return inside

    def sensitivity(self, norm: Norm, clip: float | None, n: int | None = None) -> float:
        """Of the mean of n images' vectors if one is replaced; of a whole vector, whatever is replaced, if n is None."""
        bound = self.bound(norm, clip)
        return whole_vector(bound) if n is None else mean_replace_one(bound, n)


@dataclass(frozen=True, eq=False)
class ClientVectors:
    """A client's answer as vectors (n, D), one per image, or one for an artifact that is already pooled.

    Attributes:
        rows: (n, D).
        by_image: Whether the rows are images', and their mean is shared.
        images: Number of images behind the answer; 1 if it is not told.
        rebuild: The artifact of a vector (D,).
    """

    kind: VectorKind
    rows: Tensor
    by_image: bool
    images: int
    rebuild: Callable[[Tensor], Artifact]


def vectors_of(outgoing: SharedContent, frame: VectorContext) -> ClientVectors | None:
    """The vectors of a client's answer; None for kinds without, such as sample counts."""
    images = len(outgoing.mean) if isinstance(outgoing, StyleDraft) else 1
    if isinstance(outgoing, StyleDraft) and RULES[outgoing.rule].clustering is not None:
        outgoing = outgoing.finish()  # one image can move all clusters
    if isinstance(outgoing, StyleDraft):
        draft = outgoing
        return ClientVectors(
            KINDS[StyleStatistics.kind],
            image_moments(draft, frame.scale),
            True,
            images,
            lambda moments: _style(moments, draft, frame.scale),
        )
    kind, artifact = KINDS.get(outgoing.kind), outgoing
    if kind is None:
        return None
    vector = kind.to_vector(artifact, frame)
    return ClientVectors(kind, vector[None], False, images, lambda changed: kind.from_vector(changed, artifact, frame))


# Styles


def image_moments(draft: StyleDraft, scale: float) -> Tensor:
    """Moments of each image: (n, 2C), or (n, 4C) where variances are shared."""
    mean, std = draft.mean, draft.std
    if _over_pixels(draft.rule):
        return torch.cat([mean, (mean.square() + std.square()) / scale], dim=1)
    squares = [mean.square() / scale, std.square() / scale] if draft.variances else []
    return torch.cat([mean, std, *squares], dim=1)


def images_of(moments: Tensor, draft: StyleDraft, scale: float) -> StyleDraft:
    """The draft with these moments (n, D) of its images; the squares of mean and std are those of the new ones."""
    mean, second = moments[:, : draft.mean.shape[1]], moments[:, draft.mean.shape[1] : 2 * draft.mean.shape[1]]
    if not _over_pixels(draft.rule):
        return replace(draft, mean=mean, std=second.clamp_min(0))
    return replace(draft, mean=mean, std=(scale * second - mean.square()).clamp_min(0).sqrt())


def _style(moments: Tensor, draft: StyleDraft, scale: float) -> StyleStatistics:
    """The style with these mean moments over images."""
    if _over_pixels(draft.rule):
        mean, second = moments.chunk(2)
        std = (scale * second - mean.square()).clamp_min(0).sqrt()
        return replace(draft, variances=False).pooled(mean, std, mean, mean)
    return draft.pooled(*_rebuilt(moments, draft.variances, scale))


def _rebuilt(moments: Tensor, variances: bool, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, std and their variances over images."""
    if not variances:
        mean, std = moments.chunk(2)
        return mean, std.clamp_min(0), mean[:0], mean[:0]
    mean, std, mean_square, std_square = moments.chunk(4)
    std = std.clamp_min(0)
    mean_var = (scale * mean_square - mean.square()).clamp_min(0)
    std_var = (scale * std_square - std.square()).clamp_min(0)
    return mean, std, mean_var, std_var


def _style_to(style: StyleStatistics, frame: VectorContext) -> Tensor:
    parts = [style.mean, style.std]
    if len(style.mean_var):
        parts += [
            (style.mean.square() + style.mean_var) / frame.scale,
            (style.std.square() + style.std_var) / frame.scale,
        ]
    return torch.cat(parts)


def _style_from(vector: Tensor, style: StyleStatistics, frame: VectorContext) -> StyleStatistics:
    mean, std, mean_var, std_var = _rebuilt(vector, len(style.mean_var) > 0, frame.scale)
    return replace(style, mean=mean, std=std, mean_var=mean_var, std_var=std_var)


def _over_pixels(rule: str) -> bool:
    """Whether the rule's std is over all pixels of all images."""
    return RULES[rule].pool is over_pixels and RULES[rule].clustering is None


# Spectra, shares, embeddings, accuracies


def _spectrum_to(spectrum: AmplitudeSpectrum, frame: VectorContext) -> Tensor:
    """Amplitudes over the number of pixels: by Parseval's theorem the L2 norm is at most sqrt(3) for images in [0, 1]."""
    return spectrum.amplitude.flatten() / spectrum.amplitude[0].numel()


def _spectrum_from(vector: Tensor, spectrum: AmplitudeSpectrum, frame: VectorContext) -> AmplitudeSpectrum:
    amplitude = (vector * spectrum.amplitude[0].numel()).clamp_min(0)
    return replace(spectrum, amplitude=amplitude.view_as(spectrum.amplitude))


def _embedding_to(embedding: ClientEmbedding, frame: VectorContext) -> Tensor:
    return embedding.vector


def _embedding_from(vector: Tensor, embedding: ClientEmbedding, frame: VectorContext) -> ClientEmbedding:
    return replace(embedding, vector=vector)


def _prototypes_to(prototypes: ClassPrototypes, frame: VectorContext) -> Tensor:
    """All classes, zeros for those that the client does not have, so that noise hides which these are."""
    return prototypes.features.flatten()


def _prototypes_from(vector: Tensor, prototypes: ClassPrototypes, frame: VectorContext) -> ClassPrototypes:
    return replace(prototypes, features=vector.view_as(prototypes.features))


def _shares_to(shares: LabelMarginal, frame: VectorContext) -> Tensor:
    return shares.share


def _shares_from(vector: Tensor, shares: LabelMarginal, frame: VectorContext) -> LabelMarginal:
    return replace(shares, share=onto_simplex(vector))


def onto_simplex(vector: Tensor) -> Tensor:
    """The nearest probability vector (K,) to `vector` (K,) in L2."""
    wide = vector.double()
    ordered = wide.sort(descending=True).values
    excess = (ordered.cumsum(0) - 1) / torch.arange(1, len(wide) + 1)
    shift = excess[int((ordered > excess).sum()) - 1]
    nearest: Tensor = (wide - shift).clamp(0, 1)
    return (nearest / nearest.sum()).to(vector.dtype)


def _accuracy_to(metrics: ValidationMetrics, frame: VectorContext) -> Tensor:
    return metrics.accuracy.float()[None]


def _accuracy_from(vector: Tensor, metrics: ValidationMetrics, frame: VectorContext) -> ValidationMetrics:
    return replace(metrics, accuracy=vector.clamp(0, 1)[0].to(metrics.accuracy.dtype))


def _value_to(evaluation: ModelEvaluation, frame: VectorContext) -> Tensor:
    return evaluation.value[None]


def _value_from(vector: Tensor, evaluation: ModelEvaluation, frame: VectorContext) -> ModelEvaluation:
    return replace(evaluation, value=vector.clamp(0, 1 if evaluation.metric == "accuracy" else None)[0])


# Tensors of a network


def _state_to(artifact: TensorState, frame: VectorContext, prefix: str = "") -> Tensor:
    start = _start(artifact, frame, prefix)
    parts = [(t.float() - start[name]).flatten() for name, t in artifact.state.items() if name in start]
    return torch.cat(parts) if parts else torch.empty(0)


def _state_from(vector: Tensor, artifact: TensorState, frame: VectorContext, prefix: str = "") -> TensorState:
    start = _start(artifact, frame, prefix)
    state, begin = dict(artifact.state), 0
    for name, tensor in start.items():
        changed = tensor + vector[begin : begin + tensor.numel()].view_as(tensor)
        begin += tensor.numel()
        keeps_sign = name.endswith("running_var") or (isinstance(artifact, ImportanceWeights) and not frame.signed)
        if keeps_sign and not isinstance(artifact, ModelUpdate):
            changed = changed.clamp_min(0)
        state[name] = changed.to(artifact.state[name].dtype)
    return replace(artifact, state=state)


def _start(artifact: TensorState, frame: VectorContext, prefix: str) -> dict[str, Tensor]:
    """By name, the received tensors from which the floating-point tensors differ; zeros without a received model."""
    of_received = not isinstance(artifact, ModelUpdate | ImportanceWeights) and frame.received is not None
    received = frame.received.state if of_received and frame.received is not None else {}
    return {
        name: received[prefix + name].float() if prefix + name in received else torch.zeros(tensor.shape)
        for name, tensor in artifact.state.items()
        if tensor.is_floating_point()
    }


def _head_to(artifact: ClassifierHead, frame: VectorContext) -> Tensor:
    return _state_to(artifact, frame, HEAD)


def _head_from(vector: Tensor, artifact: ClassifierHead, frame: VectorContext) -> TensorState:
    return _state_from(vector, artifact, frame, HEAD)


# Default norms are public: medians over clients of what StableFDG, PARDON, CCST, LSI and hFedF share in three rounds of the
# preset quick on digits typeset in 32 px (examples/make_digits.py: light, dark, blurred), rounded to powers of two. BatchNorm
# statistics of LSI's early rounds reach 1e5 and are clipped to far less.
KINDS: Mapping[str, VectorKind] = {
    kind.artifact.kind: kind
    for kind in (
        VectorKind(StyleStatistics, _style_to, _style_from, (128.0, 8.0)),
        VectorKind(AmplitudeSpectrum, _spectrum_to, _spectrum_from, (16.0, math.sqrt(3))),
        VectorKind(ClassifierHead, _head_to, _head_from, (8.0, 1.0)),
        VectorKind(BatchNormStatistics, _state_to, _state_from, (1024.0, 64.0)),
        VectorKind(ImportanceWeights, _state_to, _state_from, (4096.0, 32.0)),
        VectorKind(ClientEmbedding, _embedding_to, _embedding_from, (8.0, 8.0)),
        VectorKind(ClassPrototypes, _prototypes_to, _prototypes_from, (512.0, 16.0)),
        VectorKind(LabelMarginal, _shares_to, _shares_from, (1.0, 1.0), (2.0, math.sqrt(2))),
        VectorKind(ValidationMetrics, _accuracy_to, _accuracy_from, (1.0, 1.0), (1.0, 1.0)),
        VectorKind(ModelEvaluation, _value_to, _value_from, (4.0, 4.0)),
        VectorKind(ModelState, _state_to, _state_from, (256.0, 4.0)),
        VectorKind(ModelUpdate, _state_to, _state_from, (128.0, 0.25)),
    )
}
MODELS = (ModelState.kind, ModelUpdate.kind)
EVALUATIONS = (ValidationMetrics.kind, ModelEvaluation.kind)
STATISTICS = tuple(kind for kind in KINDS if kind not in (*MODELS, *EVALUATIONS))
"""The kinds of statistics of data: neither models nor evaluations of models."""
