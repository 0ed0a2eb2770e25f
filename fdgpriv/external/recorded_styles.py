"""Finds out how the styles of a recording were computed: which layer, which rule, with which BatchNorm statistics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.moments import RULES, in_parts
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.external.recorded_method import (
    BatchEncoderStyles,
    EncoderStyles,
    Features,
    FrozenEncoderStyles,
    Network,
    output_of_layer,
)
from fdgpriv.federation.recording import ENCODER
from fdgpriv.models.copied import copied

StyleEncoder = str | Callable[[nn.Module], Features]

MAX_DEVIATION = 0.1  # of recomputed styles from recorded ones, relative to these


@dataclass(frozen=True)
class StyleComputation:
    """How styles were computed.

    Attributes:
        source: Computes them.
        layer: The layer's name.
        rule: Name of the `StyleRule`.
        deviation: Of recomputed styles from the recorded ones, relative to these: the mean over clients of the norm.
    """

    source: EncoderStyles
    layer: str
    rule: str
    deviation: float

    def sentence(self) -> str:
        """What was found out, for the report."""
        with_batches = self.source.uses_batch_statistics
        mode = (
            "each client's images as one batch in training mode"
            if with_batches
            else "the received model in evaluation mode"
        )
        return (
            f"Styles were recomputed at {self.layer} by the rule {self.rule}, with {mode}: they deviate from the recorded ones "
            f"by {self.deviation:.2g} of these."
        )


def style_computation(
    encoder: StyleEncoder | None,
    network: Network,
    clients: Sequence[tuple[StyleStatistics, Tensor, nn.Module]],
    frozen: bool,
) -> StyleComputation | None:
    """The computation that reproduces the recorded styles best; None where no layer has as many channels.

    Args:
        encoder: The user's, or the name of a layer; None to try all layers.
        network: Converts images.
        clients: Of some clients, the recorded style, the images (n, 3, S, S) and the received model.
        frozen: Whether no model was sent, so that the encoder cannot be one that is trained.

    Raises:
        ValueError: The encoder cannot be computed on the images.
    """
    deviations: dict[tuple[str, str, bool], list[float]] = {}
    for style, images, model in clients:
        for in_batch in (False, True):
            moments = _moments_by_layer(encoder, network, model, images, len(style.mean), in_batch)
            for (layer, rule), (mean, std) in moments.items():
                pooled = torch.cat(RULES[rule].combine(mean, std)).double()
                recorded = torch.cat([style.mean, style.std]).double()
                deviation = float((pooled - recorded).norm() / recorded.norm().clamp_min(1e-12))
                deviations.setdefault((layer, rule, in_batch), []).append(deviation)
    if not deviations:
        return None
    mean_deviations = {key: sum(values) / len(values) for key, values in deviations.items()}
    layer, rule, in_batch = min(mean_deviations, key=lambda key: mean_deviations[key])
    encoder_of = encoder if callable(encoder) else output_of_layer(layer)
    source_class = FrozenEncoderStyles if frozen else BatchEncoderStyles if in_batch else EncoderStyles
    source = source_class(encoder_of, network, layer)
    return StyleComputation(source, layer, rule, mean_deviations[layer, rule, in_batch])


@torch.no_grad()
def _moments_by_layer(
    encoder: StyleEncoder | None, network: Network, model: nn.Module, images: Tensor, channels: int, in_batch: bool
) -> Mapping[tuple[str, str], tuple[Tensor, Tensor]]:
    """By layer and rule, mean and std (n, C) of each image's features, of layers with C channels.

    Args:
        encoder, network: As of `style_computation`.
        model: The received model.
        images: (n, 3, S, S).
        channels: C.
        in_batch: In training mode, all images as one batch; else in evaluation mode.
    """
    passed = copied(model).train(in_batch)
    parts: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = {}
    rules = [rule for rule in RULES.values() if rule.clustering is None]
    for batch in [images] if in_batch else in_parts(images):
        for layer, features in _features(encoder, passed, network.adapted(batch)).items():
            if features.ndim == 4 and features.shape[1] == channels:
                for rule in rules:
                    parts.setdefault((layer, rule.name), []).append(rule(features))
    joined = {key: [torch.cat(moment) for moment in zip(*moments, strict=True)] for key, moments in parts.items()}
    return {key: (mean, std) for key, (mean, std) in joined.items()}


def _features(encoder: StyleEncoder | None, model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """The encoder's output by its name; of no encoder, the output of every layer."""
    if callable(encoder):
        return {ENCODER: encoder(model)(images)}
    names = [name for name, _ in model.named_modules() if name] if encoder is None else [encoder]
    with _outputs(model, names) as outputs:
        model.forward(images)  # not a call, which would convert the images again
    return outputs


@contextmanager
def _outputs(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Context in which the layers of these names store their output."""
    outputs: dict[str, Tensor] = {}
    hooks = []
    for name in names:

        def store(module: nn.Module, inputs: tuple[Tensor, ...], output: object, name: str = name) -> None:
            if isinstance(output, Tensor):
                outputs[name] = output.clone()  # a layer that follows may work in place

        hooks.append(model.get_submodule(name).register_forward_hook(store))
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()
