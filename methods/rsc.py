"""RSC: clients mute the features that a class depends on most (Huang et al., ECCV 2020).

Reference: Huang, Wang, Xing and Huang, "Self-challenging improves cross-domain generalization", ECCV 2020.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.models.backbone import Classifier
from fdgpriv.utils.fields import Fraction

from ._averaging import FederatedAveraging
from ._federation import Batch


@dataclass(frozen=True)
class RSC(FederatedAveraging):
    """FedAvg, whose clients train without the last features by which the true class's logit grows fastest.

    Each mini-batch mutes positions or channels, with probability 1/2 each: of an image, those with the largest gradients of
    the true class's logit. Only the images whose confidence drops most by this are trained so; the others keep all features.

    For positions the paper averages the gradient over channels. Under global average pooling, which all networks here have,
    it is then the same everywhere; as in the released code, positions are ranked by the sum over channels of the features
    times their channel's mean gradient. Both shares are constant, as in the paper; in the released code that of images grows
    with the epochs.

    Attributes:
        muted: Share of positions or channels that are muted, rounded to a whole number.
        challenged: Share of a mini-batch that is trained with muted features, likewise.
    """

    muted: Fraction = 1 / 3
    challenged: Fraction = 1 / 3

    @property
    def coupling(self) -> str:
        return "which images are trained with muted features depends on the other images in the mini-batch"

    def loss(self, model: nn.Module, batch: Batch, rng: torch.Generator) -> Tensor:
        assert isinstance(model, Classifier)
        features = model.backbone(batch.images)
        mask = self.mask(model, features, batch.labels, bool(torch.rand((), generator=rng) < 0.5))
        return nn.functional.cross_entropy(model.classify(features * mask), batch.labels)

    def mask(self, model: Classifier, features: Tensor, labels: Tensor, positions: bool) -> Tensor:
        """The mask (B, 1, H, W) of positions or (B, C, 1, 1) of channels: 0 where features (B, C, H, W) are muted, else 1."""
        features = features.detach().requires_grad_()
        logits = model.classify(features)
        (gradient,) = torch.autograd.grad(logits.gather(1, labels[:, None]).sum(), features)
        by_channel = gradient.mean((2, 3), keepdim=True)
        scores = (features * by_channel).sum(1, keepdim=True) if positions else by_channel
        mask = 1 - _largest(scores.detach().flatten(1), self.muted).view_as(scores)
        with torch.no_grad():
            before, after = (_confidence(z, labels) for z in (logits, model.classify(features * mask)))
        challenged = _largest((before - after)[None], self.challenged)[0]
        return torch.where(challenged.bool()[:, None, None, None], mask, 1.0)


def _largest(scores: Tensor, share: float) -> Tensor:
    """1 for this share of each row's entries (N, M), those with the largest scores, else 0."""
    largest = scores.topk(round(share * scores.shape[1]), dim=1).indices
    return torch.zeros_like(scores).scatter_(1, largest, 1.0)


def _confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """The probability (B,) of the true class."""
    return logits.softmax(1).gather(1, labels[:, None])[:, 0]
