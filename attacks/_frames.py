"""Styles of images as they would be in a client's batches: one frame for each domain that the client may be of.

Where BatchNorm's batch statistics normalise the features, an image has another style alone than beside other images. An
adversary does not have those others; it normalises by public images of a domain in their place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifact import ModelState
from fdgpriv.exam import View

from ._alone import alone
from ._reading import held


@dataclass(frozen=True, eq=False)
class Frame:
    """Public images' styles, and any others', normalised alike.

    Attributes:
        view: Of the adversary.
        sent: The model that statistics are taken under; None for styles.
        among: The images by which all are normalised; None for each by itself.
        own: (P, D) of the public images that the frame is for.
    """

    view: View
    sent: ModelState | None
    among: Tensor | None
    own: Tensor

    @property
    def center(self) -> Tensor:
        """(D,): the mean of the public images'."""
        return self.own.mean(0)

    def styles(self, images: Tensor) -> Tensor:
        """(N, D) of any images (N, 3, H, W)."""
        return alone(self.view, images, self.sent, self.among)


def frames(view: View, n: int, sent: ModelState | None = None) -> Sequence[Frame]:
    """The frames that artifacts of n images may be in: one for each domain where the others matter, else one for all."""
    domains = held(view)
    if n == 1 or not view.jointly:
        return [Frame(view, sent, None, torch.cat([alone(view, domain.images, sent) for domain in domains]))]
    return [Frame(view, sent, d.images, alone(view, d.images, sent, d.images)) for d in domains]
