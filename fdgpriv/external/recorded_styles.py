"""Infers how recorded styles were computed: the layer, the rule, and the BatchNorm statistics."""

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
from fdgpriv.federation.message_content import ENCODER
from fdgpriv.models.copied import copied

StyleEncoder = str | Callable[[nn.Module], Features]

MAX_DEVIATION = 0.1  # of recomputed styles from recorded ones, relative to these


@dataclass(frozen=True)
class StyleComputation:
    """A computation of styles.

    Attributes:
        source: Computes the styles.
        layer: The layer's name.
        rule: Name of the `StyleRule`.
        deviation: Norm of the difference of recomputed and recorded styles, relative to the recorded ones; mean over clients.
    """

    source: EncoderStyles
    layer: str
    rule: str
    deviation: float

    def sentence(self) -> str:
        """The computation in one sentence of the report."""
        mode = (
            "each client's images as one batch in training mode"
            if self.source.uses_batch_statistics
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
    """The computation that reproduces the recorded styles best; None if no layer has as many channels.

    Args:
        encoder: The user's encoder, or the name of a layer; None to try all layers.
        network: Converts images.
        clients: For each client, the recorded style, its images (n, 3, S, S) and the received model.
        frozen: Whether no model was sent: then the encoder is not trained.

    Raises:
        ValueError: The encoder cannot be computed on the images.
    """
    deviations = _mean_deviations(encoder, network, clients)
    if not deviations:
        return None
    layer, rule, in_batch = min(deviations, key=lambda key: deviations[key])
    encoder_of = encoder if callable(encoder) else output_of_layer(layer)
    source_class = FrozenEncoderStyles if frozen else BatchEncoderStyles if in_batch else EncoderStyles
    source = source_class(encoder_of, network, layer, callable(encoder))
    return StyleComputation(source, layer, rule, deviations[layer, rule, in_batch])


def _mean_deviations(
    encoder: StyleEncoder | None, network: Network, clients: Sequence[tuple[StyleStatistics, Tensor, nn.Module]]
) -> dict[tuple[str, str, bool], float]:
    """By layer, rule and whether images are one batch in training mode: the deviation as of `StyleComputation`."""
    deviations: dict[tuple[str, str, bool], list[float]] = {}
    for style, images, model in clients:
        recorded = torch.cat([style.mean, style.std]).double()
        for in_batch in (False, True):
            moments = _moments_by_layer(encoder, network, model, images, len(style.mean), in_batch)
            for (layer, rule), (mean, std) in moments.items():
                pooled = torch.cat(RULES[rule].combine(mean, std)).double()
                deviation = float((pooled - recorded).norm() / recorded.norm().clamp_min(1e-12))
                deviations.setdefault((layer, rule, in_batch), []).append(deviation)
    return {key: sum(values) / len(values) for key, values in deviations.items()}


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
        in_batch: Whether to compute all images as one batch in training mode; else in evaluation mode.
    """
    model = copied(model).train(in_batch)
    parts: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = {}
    rules = [rule for rule in RULES.values() if rule.clustering is None]
    for batch in [images] if in_batch else in_parts(images):
        for layer, features in _features(encoder, model, network.adapted(batch)).items():
            if features.ndim == 4 and features.shape[1] == channels:
                for rule in rules:
                    parts.setdefault((layer, rule.name), []).append(rule(features))
    joined = {key: [torch.cat(moment) for moment in zip(*moments, strict=True)] for key, moments in parts.items()}
    return {key: (mean, std) for key, (mean, std) in joined.items()}


def _features(encoder: StyleEncoder | None, model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """By layer, its output: of the encoder, or of every layer if there is no encoder."""
    if callable(encoder):
        return {ENCODER: encoder(copied(model))(images)}
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
