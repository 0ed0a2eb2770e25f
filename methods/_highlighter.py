"""StableFDG's attention-based feature highlighter: attends to features common to samples of one class.

Reference: Park et al., "StableFDG", NeurIPS 2023, section 3.2, Eq. 6-8.
"""

import warnings
from typing import Literal

import torch
from torch import Tensor, nn

from fdgpriv.models.backbone import Backbone
from fdgpriv.utils.global_rng import drawing_from

Attention = Literal["mix", "cross", "self", "conv", "off"]


class Highlighter(nn.Module):
    """Attention pooling: scores each position of z (B, C, H, W) against a query, returns the weighted mean A(z) (B, C).

    Args:
        channels: C.
        dim: d, the embedding size of queries and keys.
        kind: The query is the mean of the partner's and the sample's query (``mix``, Eq. 8), the partner's (``cross``, Eq. 6)
            or the sample's (``self``); ``conv`` scores with two convolutions of the same size and no query (App. F.2).
        qk_norm: L2-normalise queries and keys over d per position, as the released code does; Eq. 8 does not.
        released: Adds the biases, value branch and output scale of the released code, which are shared but unused.
    """

    def __init__(self, channels: int, dim: int, kind: str, qk_norm: bool, released: bool = False) -> None:
        super().__init__()
        self.kind, self.qk_norm = kind, qk_norm
        self.query = nn.Conv2d(channels, dim, 1, bias=released)
        ends = (dim, channels) if kind == "conv" else (channels, dim)
        self.key = nn.Conv2d(*ends, 1, bias=released)
        if released:
            self.value = nn.Conv2d(channels, dim, 1)
            self.out = nn.Conv2d(1, 1, 1)

    def scores(self, z: Tensor, partner: Tensor | None) -> Tensor:
        """Attention weights (B, HW), non-negative with sum 1.

        Queries are averaged over positions before the product with the keys, which equals the mean over the rows of the
        HW x HW similarity matrix without forming it.

        Args:
            z: (B, C, H, W).
            partner: (B,) index of another sample of the same class; None for inference, with self-attention.
        """
        if self.kind == "conv":
            logits: Tensor = self.key(self.query(z).relu()).mean(1).flatten(1)
            return logits.softmax(1)
        query, key = self.query(z).flatten(2), self.key(z).flatten(2)
        if self.qk_norm:
            query, key = nn.functional.normalize(query, dim=1), nn.functional.normalize(key, dim=1)
        self_query = query.mean(2)
        if partner is None or self.kind == "self":
            pooled_query = self_query
        elif self.kind == "cross":
            pooled_query = self_query[partner]
        else:
            pooled_query = (self_query[partner] + self_query) / 2
        return torch.einsum("bd,bdp->bp", pooled_query, key).softmax(1)

    def forward(self, z: Tensor, partner: Tensor | None = None) -> Tensor:
        """A(z) (B, C), Eq. 7."""
        return torch.einsum("bp,bcp->bc", self.scores(z, partner), z.flatten(2))


class HighlightedClassifier(nn.Module):
    """Classifier on the concatenated mean and attention features of a backbone: Linear(2C, K).

    Args:
        backbone: Its last feature map is z.
        classes: K.
        image_size: H = W of the images.
        rng: For the initialisation.
        dim, kind, qk_norm, released: As in `Highlighter`; the kind ``off`` omits the highlighter.

    Raises:
        ValueError: The last feature map has one position, so attention is constant.
    """

    def __init__(
        self,
        backbone: Backbone,
        classes: int,
        image_size: int,
        rng: torch.Generator,
        *,
        dim: int = 30,
        kind: str = "mix",
        qk_norm: bool = True,
        released: bool = False,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        channels = backbone.out_channels
        with drawing_from(rng):
            self.highlighter = None if kind == "off" else Highlighter(channels, dim, kind, qk_norm, released)
            self.head = nn.Linear(channels if kind == "off" else 2 * channels, classes)
        if self.highlighter is not None:
            _check_positions(backbone, image_size)

    def classify(self, z: Tensor, partner: Tensor | None = None) -> Tensor:
        """Logits (B, K) of the backbone's last map z (B, C, H, W)."""
        pooled = z.mean(dim=(2, 3))
        if self.highlighter is not None:
            pooled = torch.cat([pooled, self.highlighter(z, partner)], dim=1)
        logits: Tensor = self.head(pooled)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W), with self-attention."""
        return self.classify(self.backbone(images))


def _check_positions(backbone: Backbone, image_size: int) -> None:
    training = backbone.training
    with torch.no_grad():
        height, width = backbone.eval()(torch.zeros(1, 3, image_size, image_size)).shape[-2:]
    backbone.train(training)
    if height * width == 1:
        raise ValueError(
            f"stablefdg.attention: want a last feature map of more than one position, got 1 x 1 at {image_size} px; "
            "use a larger image, a stem of stride 1, or attention=off"
        )
    if min(height, width) < 4:
        warnings.warn(
            f"attention over a {height} x {width} map has little to choose from; want 4 x 4, from larger images",
            stacklevel=3,
        )
