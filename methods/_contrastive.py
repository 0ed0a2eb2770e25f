"""PARDON's embedding network and losses: triplet loss across styles, and L2 regularisation of embeddings.

Reference: Nguyen et al., "PARDON", Eq. 7-8.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, triplet_margin_loss

from fdgpriv.models.backbone import Backbone, Classifier
from fdgpriv.utils.global_rng import drawing_from


class EmbeddingClassifier(Classifier):
    """Classifier on an embedding z: a linear projection of the pooled features, of the same width."""

    def __init__(self, backbone: Backbone, classes: int, rng: torch.Generator) -> None:
        super().__init__(backbone, classes, rng)
        with drawing_from(rng):
            self.project = nn.Linear(backbone.out_channels, backbone.out_channels)

    def embedded(self, features: Tensor) -> Tensor:
        projected: Tensor = self.project(super().embedded(features))
        return projected


def contrast(
    original: Tensor, styled: Tensor, labels: Tensor, margin: float, rng: torch.Generator, same_class: bool = False
) -> tuple[Tensor, int]:
    """Mean triplet loss () of anchors `original` (B, D), and the number of anchors skipped for lack of a negative.

    Embeddings are L2-normalised. Each anchor's negative is the stylised embedding of a sample of another class, drawn
    uniformly from the batch; without anchors that have a negative, the loss is 0.

    Args:
        original: Embeddings (B, D) of a batch.
        styled: Embeddings (B, D) of the stylised samples.
        labels: Classes (B,).
        margin: Margin of the triplet loss.
        rng: For drawing positives and negatives.
        same_class: Draw the positive from all other embeddings of the anchor's class, stylised or not; otherwise the
            positive is the anchor's own stylised embedding.
    """
    labels = labels.cpu()
    same = labels[:, None] == labels
    anchors = (~same).any(1).nonzero().flatten()
    skipped = len(labels) - len(anchors)
    if not len(anchors):
        return original.new_zeros(()), skipped
    negative = _random_true_column(~same[anchors], rng).to(original.device)
    positive = anchors + len(labels)
    if same_class:
        positive = _random_true_column(
            torch.cat([same & ~torch.eye(len(labels), dtype=torch.bool), same], dim=1)[anchors], rng
        )
    embeddings = normalize(torch.cat([original, styled]))
    loss = triplet_margin_loss(
        embeddings[anchors.to(original.device)],
        embeddings[positive.to(original.device)],
        embeddings[negative + len(labels)],
        margin=margin,
        eps=1e-7,
    )
    return loss, skipped


def embedding_penalty(embeddings: Tensor, summed: bool = False) -> Tensor:
    """Mean squared embedding (M, D) over samples and dimensions, or the sum over both (Eq. 8 as printed)."""
    square = embeddings.square()
    return square.sum() if summed else square.mean()


def _random_true_column(allowed: Tensor, rng: torch.Generator) -> Tensor:
    """A true column (A,) of each row of `allowed` (A, M), drawn uniformly."""
    return torch.multinomial(allowed.float(), 1, generator=rng)[:, 0]
