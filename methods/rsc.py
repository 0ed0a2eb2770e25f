"""RSC: clients mute the features that a class depends on most (Huang et al., ECCV 2020).

Reference: Huang, Wang, Xing and Huang, "Self-challenging improves cross-domain generalization", ECCV 2020.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.models.backbone import Classifier
from fdgpriv.utils.fields import Fraction

from ._averaging import FederatedAveraging
from ._federation import Batch

_LEAST_DROP = 1e-4  # of the true class's probability
_ROUNDING = 1e-9  # of a product that is a whole number


@dataclass(frozen=True)
class RSC(FederatedAveraging):
    """FedAvg, whose clients train without the last features by which the true class's logit grows fastest.

    Each mini-batch mutes positions or channels, with probability 1/2 each: of an image, those with the largest gradients of
    the true class's logit. Only the images whose confidence drops most by this are trained so; the others keep all features.

    For positions the paper averages the gradient over channels. Under global average pooling, which all networks here have,
    it is then the same everywhere; as in the released code, positions are ranked by the sum over channels of the features
    times their channel's mean gradient. Numbers of positions and channels are rounded up, and the number of images is
    rounded, as in the released code; so are the shares, but for that of images, which is constant as in the paper, and
    there grows with the epochs. At least one position or channel is left.

    Attributes:
        muted: Share of positions that are muted.
        muted_channels: Share of channels; in the paper as `muted`.
        challenged: Share of a mini-batch that is trained with muted features, those of its images whose confidence drops
            most, and by more than 1e-4.
    """

    muted: Fraction = 1 / 3
    muted_channels: Fraction = 1 / 3.2
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
        rows, share = scores.detach().flatten(1), self.muted if positions else self.muted_channels
        count = min(math.ceil(share * rows.shape[1] - _ROUNDING), rows.shape[1] - 1)
        mask = 1 - _largest(rows, count).view_as(scores)
        with torch.no_grad():
            before, after = (_confidence(z, labels) for z in (logits, model.classify(features * mask)))
        drops = before - after
        challenged = _largest(drops[None], round(self.challenged * len(drops)))[0].bool() & (drops > _LEAST_DROP)
        return torch.where(challenged[:, None, None, None], mask, 1.0)


def _largest(scores: Tensor, count: int) -> Tensor:
    """1 for `count` of each row's entries (N, M), those with the largest scores, else 0."""
    largest = scores.topk(count, dim=1).indices
    return torch.zeros_like(scores).scatter_(1, largest, 1.0)


def _confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """The probability (B,) of the true class."""
    return logits.softmax(1).gather(1, labels[:, None])[:, 0]
