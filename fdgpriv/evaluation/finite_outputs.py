"""Checks that the outputs of shared models, and artifacts computed by them, are finite: else no attack can use them.

The noise of a defense can make variances of BatchNorm 0 and weights large. Such a model is finite, but its outputs, and
the features of its deeper layers, are not.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fdgpriv.data.dataset import Domain
from fdgpriv.results.utility import logits
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages, ClientSample, Simulator
from fdgpriv.utils.seeds import generator


def overflow_reason(series: ArtifactSeries[Simulator], images: Tensor) -> str | None:
    """Why no attack can evaluate the models of these artifacts, in one sentence; None if all outputs are finite.

    Outputs are computed on `images` (N, 3, H, W). Simulated models have the same noise.
    """
    artifacts = {id(artifact): (client, artifact) for client, artifact in series.wire.items()}
    overflowing = 0
    for client, artifact in artifacts.values():
        model = series.simulator.model_of(artifact, series.received_model.get(client))
        overflowing += model is not None and not bool(logits(model, images).isfinite().all())
    if not overflowing:
        return None
    return (
        f"{overflowing} of {len(artifacts)} models that were shared give outputs that are not finite, so that nobody can "
        "evaluate them; want a defense with less noise, or a smaller lr"
    )


def finite_layers(simulator: Simulator, domains: Sequence[Domain]) -> tuple[str, ...]:
    """The layers at which the undefended artifact of each single image of these domains is finite."""

    samples = [
        ClientSample(party, index, "image", defended=False)
        for party in [ClientImages(domain.images, domain.labels) for domain in domains]
        for index in torch.arange(len(party.labels))[:, None]
    ]

    def is_finite(layer: str) -> bool:
        at_layer = simulator.at(layer)
        return all(at_layer.simulate(sample, generator(0)).not_finite() is None for sample in samples)

    return tuple(layer for layer in simulator.layers() if is_finite(layer))
