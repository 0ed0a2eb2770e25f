"""A client's evaluations of a model on its held-out images, which it shares with the server."""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from fdgpriv.artifacts.statistics import ModelEvaluation
from fdgpriv.data.dataset import ClientData
from fdgpriv.method import Method
from fdgpriv.results.utility import logits

Metric = Literal["loss", "accuracy"]


def want_held_out(method: Method, data: ClientData) -> None:
    """Raises ValueError if the client has no held-out images."""
    if not len(data.held_out_labels):
        raise ValueError(f"{method.name()}: want held-out images of every client, got none of {data.client}")


def evaluations(
    model: nn.Module, data: ClientData, round: int, metrics: Sequence[Metric], trained: bool
) -> list[ModelEvaluation]:
    """One artifact for each of these metrics of `model` on the client's held-out images.

    Args:
        model: In any mode; left in evaluation mode.
        data: The client's, with held-out images.
        round: Of the artifacts.
        metrics: The mean cross-entropy in nats, the accuracy, or both.
        trained: Whether the client has trained the model in this round, or received it.
    """
    outputs, labels = logits(model, data.held_out_pixels), data.held_out_labels
    values = {
        "loss": nn.functional.cross_entropy(outputs, labels),
        "accuracy": (outputs.argmax(1) == labels).float().mean(),
    }
    return [
        ModelEvaluation(client=data.client, round=round, value=values[metric], metric=metric, trained=trained)
        for metric in metrics
    ]
