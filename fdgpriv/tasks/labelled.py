"""Reconstructed images together with the label shares inferred from the same artifact."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fdgpriv.adversary import Prediction
from fdgpriv.simulation.ground_truth import GroundTruth


class Labelled(Tensor):
    """Reconstructed images with inferred label shares; any computation with them gives plain tensors."""

    shares: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def of(cls, images: Tensor, shares: Tensor) -> "Labelled":
        """These images, with the inferred share of each label (K,) among the artifact's images."""
        found = images.as_subclass(cls)
        found.shares = shares
        return found


def labels_right(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
    """The share (M,) of labels that the prediction has right: 1 minus half the L1 error of the label distribution."""
    inferred = [prediction.shares for prediction in predictions if isinstance(prediction, Labelled)]
    off = [(shares - truth.histogram).abs().sum() for shares, truth in zip(inferred, truths, strict=True)]
    return 1 - torch.stack(off) / 2
