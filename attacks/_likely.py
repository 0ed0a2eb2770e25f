"""What public images suggest of private ones before any descent, which is then held near it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fdgpriv.exam import View
from fdgpriv.style import Moments

from ._batchnorm import bn_layers, watched
from ._blind import class_means
from ._linear import linear_reader
from ._reading import public_images


class Likely:
    """Of a single image what ridge regression sees in its statistics and its label; of several, their classes' means.

    Args:
        view: The public images.
        model: The network whose statistics are read, holding what was sent, in evaluation mode.
        own: Normalise each image by its own statistics.
    """

    def __init__(self, view: View, model: nn.Module, own: bool) -> None:
        self.images, self.labels = public_images(view)
        self.means = class_means(self.images, self.labels)
        self.classes = view.classes
        parts: dict[str, list[Moments]] = {}
        with torch.no_grad():
            for part in self.images.split(128) if bn_layers(model) else ():
                with watched(model, len(part), own) as seen:
                    model(part)
                for name, moments in seen.items():
                    parts.setdefault(name, []).append(moments)
        self.moments = {name: (torch.cat([m for m, _ in p]), torch.cat([v for _, v in p])) for name, p in parts.items()}

    def __call__(self, asked: Mapping[str, Moments], labels: Tensor) -> Tensor:
        """Images (G, m, 3, H, W) in [0, 1].

        Args:
            asked: By layer, moments (G, C) of each of G groups' inputs; {} where none are known.
            labels: (G, m) of the groups' images.
        """
        if labels.shape[1] > 1 or not asked:
            return self.of_class(labels)
        known, rows = self._rows(asked)
        weight, bias = linear_reader(self._inputs(known, self.labels), self.images)
        found = self._inputs(rows, labels[:, 0]) @ weight.T + bias
        return found.view(-1, 1, *self.images.shape[1:]).clamp(0, 1)

    def shares(self, asked: Mapping[str, Moments]) -> Tensor:
        """(G, K): the share of each label that ridge regression on single images reads from moments (G, C)."""
        known, rows = self._rows(asked)
        weight, bias = linear_reader(known, nn.functional.one_hot(self.labels, self.classes).float())
        found = (rows.clamp(-10, 10) @ weight.T + bias).clamp_min(0)
        return found / found.sum(1, keepdim=True).clamp_min(1e-9)

    def of_class(self, labels: Tensor) -> Tensor:
        """The mean public images (G, m, 3, H, W) of these labels (G, m); of a class that is not held, of all."""
        anything = self.images.mean(0)
        return torch.stack([torch.stack([self.means.get(k, anything) for k in row]) for row in labels.tolist()])

    def _rows(self, asked: Mapping[str, Moments]) -> tuple[Tensor, Tensor]:
        """Moments of the public images (N, D) and those asked for (G, D), in units of the public images' spread."""
        known = _row({name: self.moments[name] for name in asked})
        center, spread = known.mean(0), known.std(0) + 1e-3 * known.std(0).mean() + 1e-8
        return (known - center) / spread, (_row(asked) - center) / spread

    def _inputs(self, rows: Tensor, labels: Tensor) -> Tensor:
        named = nn.functional.one_hot(labels, self.classes).float() * self.classes**0.5
        return torch.cat([rows.clamp(-10, 10), named], dim=1)


def _row(moments: Mapping[str, Moments]) -> Tensor:
    return torch.cat([torch.cat([mean, variance.sqrt()], dim=1) for mean, variance in moments.values()], dim=1)
