"""Which labels were behind an update: read off the change of the last layer's bias, before any image is.

The bias of class c moves with the mean of p_c - y_c over the batch. Of a single image its label's entry alone is
negative (Zhao et al., "iDLG", 2020). Of several, label counts solve a linear system whose matrix, the mean probabilities by
true class, and whose scale are learned from public images (Geng et al., "Towards general deep leakage in FL", 2021).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from fdgpriv.artifact import ModelState
from fdgpriv.exam import View
from fdgpriv.subjects import TrainingCraft
from fdgpriv.utility import logits

from ._reading import held, public_images

_LOOKED_AT = 300  # public images


class LabelReader:
    """Reads updates of one model that was sent, of one number of images.

    Args:
        view: Public images, and how clients train.
        model: The network, holding what was sent, in evaluation mode.
        sent: The same.
        images: How many are behind the updates.
        rng: Of one practice update.
    """

    def __init__(self, view: View, model: nn.Module, sent: ModelState, images: int, rng: torch.Generator) -> None:
        self.images, self.classes = images, view.classes
        craft = view.craft(TrainingCraft)
        self.layer = craft.last_layer
        if images == 1:
            return
        self.pull = view.learned.get((_pull, sent), lambda: _pull(view, model))
        domain = max(held(view), key=len)
        index = torch.randperm(len(domain), generator=rng)[:images]
        made = view.make(domain.images, domain.labels, index, rng, sent)
        known = self.pull @ _shares(domain.labels[index], view.classes)
        moved = bias_change(craft.change(made, sent), self.layer)
        self.scale = max(1e-12, float(known @ moved / known.square().sum().clamp_min(1e-12)))

    def __call__(self, change: Mapping[str, Tensor]) -> Tensor:
        """The share of each label (K,), which sums to 1, behind this change (sent minus trained)."""
        moved = bias_change(change, self.layer)
        if self.images == 1:
            return _shares(moved.argmin()[None], self.classes)
        weight = 10.0  # of the shares' sum, which is known
        system = torch.cat([self.pull, torch.full((1, self.classes), weight)]).double().numpy()
        asked = torch.cat([moved / self.scale, torch.tensor([weight])]).double().nan_to_num(0, 0, 0).numpy()
        found, _ = nnls(system, np.clip(asked, -1e3, 1e3))
        shares = torch.from_numpy(found).float()
        return shares / shares.sum().clamp_min(1e-9)


def bias_change(change: Mapping[str, Tensor], layer: Sequence[str]) -> Tensor:
    """(K,): what training took away from the bias of this layer; where it has none, from its weights, summed by class."""
    last = change[layer[-1]]
    return last if last.ndim == 1 else last.flatten(1).sum(1)


def labels_of(shares: Tensor, count: int) -> Tensor:
    """`count` labels in these shares (K,), by largest remainders, rising."""
    exact = shares * count
    whole = exact.floor().long()
    missing = count - int(whole.sum())
    whole[(exact - whole).topk(max(0, missing)).indices] += 1
    return torch.repeat_interleave(torch.arange(len(shares)), whole)[:count]


def _shares(labels: Tensor, classes: int) -> Tensor:
    return labels.bincount(minlength=classes) / len(labels)


@torch.no_grad()
def _pull(view: View, model: nn.Module) -> Tensor:
    """(K, K): column a is the mean of p - y over public images of class a; even probabilities where there are none."""
    images, labels = (whole[:: -(-len(whole) // _LOOKED_AT)] for whole in public_images(view))
    told = logits(model, images, images.device).softmax(1)
    rows = [
        told[labels == label].mean(0) if (labels == label).any() else torch.full((view.classes,), 1 / view.classes)
        for label in range(view.classes)
    ]
    return torch.stack(rows).T - torch.eye(view.classes)
