"""Whether the models in artifacts give finite outputs, without which no attack can evaluate them."""

from torch import Tensor

from fdgpriv.results.utility import logits
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator


def overflow_reason(series: ArtifactSeries[Simulator], images: Tensor) -> str | None:
    """Why no attack can evaluate the models of these artifacts, in one sentence; None where attacks can.

    The noise of a defense can make variances of BatchNorm 0 and weights large. Such a model is finite, but its outputs
    on `images` (N, 3, H, W) are not. Simulated models would have the same noise.
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
