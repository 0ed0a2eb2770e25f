"""Deep inversion: images are optimised until they leave the batch statistics in BatchNorm's buffers that a client left.

Reference: Yin et al., "Dreaming to distill: data-free knowledge transfer via DeepInversion", CVPR 2020; Hatamizadeh et
al., "Do gradient inversion attacks make federated learning unsafe?", TMI 2023 (first-layer multiplier). LSI's claim that one
layer's statistics do not suffice (METHODS 7e, H-L1) is why the number of layers is swept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifact import ModelState
from fdgpriv.exam import Guess, Question, View
from fdgpriv.roles import Attack
from fdgpriv.states import BatchNormStatistics
from fdgpriv.subjects import Craft, StatisticsCraft, Subject, TrainingCraft
from fdgpriv.threat import Capability

from ._batchnorm import apart, shares_statistics, watched
from ._blind import blind_sets
from ._descent import around, descend, total_variation, want_descent
from ._images import Labelled, known_shares
from ._reconstruction import Reconstruction
from ._uploads import Uploads, taken_anew, uploads

_TOGETHER = 64
ALL = 0


@dataclass(frozen=True)
class DeepInversion(Reconstruction):
    """Inverts the model that was sent, normalising by the guessed batch's own statistics as clients in training do.

    Statistics that clients take anew under that model are those of their images as they stand, and labels are read from
    them too; of a trained model, what the last layer's change tells.

    Attributes:
        layers: k, how many BatchNorm layers' statistics are matched: from the first on, for a negative k from the last
            back, 0 for all.
        sweep: The k that single images are examined at besides, where a model is what is read.
        steps: Of Adam.
        lr: Of the first step, in pixel values.
        restarts: Starts tried, the one with the least objective kept.
        logits: Weight of the cross-entropy with the labels that are read.
        bn: Weight of the statistics.
        first: Weight of the first layer among them.
        tv: Weight of the total variation.
        prior: Weight of the squared distance from what public images suggest.
        coarse: The first half of the steps draws at a resolution this many times lower.
        most: Images drawn for a client of that many or more.
    """

    reads: ClassVar[tuple[str, ...]] = (ModelState.kind, BatchNormStatistics.kind)
    sizes: ClassVar[tuple[int | None, ...]] = (1, None)
    threats: ClassVar[tuple[str, ...]] = ("server",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"steps": 1, "most": 2, "sweep": ()},
        "paper": {"steps": 2000, "sweep": (-1, 1, 2, 4, 8, 16, 32), "most": 32},
    }

    layers: int = ALL
    sweep: tuple[int, ...] = (-1, 1, 4)
    steps: int = 10
    lr: float = 0.05
    restarts: int = 1
    logits: float = 0.01
    bn: float = 1.0
    first: float = 1.0
    tv: float = 0.02
    prior: float = 100.0
    coarse: int = 1
    most: int = 4

    def __post_init__(self) -> None:
        want_descent(self.name(), self.steps, self.lr, self.restarts)
        if self.coarse < 1 or self.most < 1:
            raise ValueError(f"deep_inversion: want coarse and most of at least 1, got {self.coarse} and {self.most}")

    def settings(self, kind: str) -> dict[str, Attack]:
        swept = self.sweep if kind == ModelState.kind else ()
        return {_called(k): replace(self, layers=k) for k in (*swept, ALL)} if swept else {}

    def refuses(self, subject: Subject[Craft]) -> str | None:
        if any(shares_statistics(artifact.tensors()) for artifact in subject.wire.values()):
            return None
        return "no BatchNorm statistics are in the models that clients send"

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        layers = slice(self.layers, None) if self.layers < 0 else slice(self.layers or None)
        if isinstance(questions[0].artifact, BatchNormStatistics):
            model = view.craft(StatisticsCraft, Capability.HAS_BN).network().eval()
            given = taken_anew(view, model, questions, self.most, layers)
        else:
            craft = view.craft(TrainingCraft, Capability.HAS_BN)
            view.threat.require(Capability.HAS_UPDATES)
            model = craft.network().eval()
            given = uploads(view, craft, model, questions, self.most, layers, rng)
        guesses: dict[int, Guess] = {}
        for found in given:
            drawn = torch.cat(
                [
                    self.inverted(model, found, some, rng)
                    for some in torch.arange(len(found.places)).split(max(1, _TOGETHER // found.labels.shape[1]))
                ]
            )
            for place, images, shares in zip(found.places, drawn, found.shares, strict=True):
                guesses[place] = Labelled.told(images, shares)
        return [guesses[i] for i in range(len(questions))], known_shares(view, blind_sets(view, self.most, rng))

    def inverted(self, model: nn.Module, found: Uploads, some: Tensor, rng: torch.Generator) -> Tensor:
        """Images (G, m, 3, H, W) for `some` (G,) of the uploads found; the model holds what was sent."""
        asked = {name: (mean[some], variance[some]) for name, (mean, variance) in found.moments.items()}
        labels, likely = found.labels[some], found.likely[some]
        groups, side = len(likely), likely.shape[-2:]

        def objective(images: Tensor) -> Tensor:
            batch = images.flatten(0, 1)
            batch = batch if batch.shape[-2:] == side else _resized(batch, side)
            loss = nn.functional.cross_entropy(model(batch), labels.flatten(), reduction="none")
            far = (batch - likely.flatten(0, 1)).square().mean(dim=(1, 2, 3))
            each = self.logits * loss + self.prior * far + self.tv * total_variation(batch)
            value = each.view(groups, -1).mean(1)
            if asked:
                value = value + self.bn * apart(seen, asked, self.first)
            return value

        starts = around(found.start[some], self.restarts, rng)
        steps = self.steps
        with watched(model, groups, found.own) as seen:
            if self.coarse > 1:
                small = [nn.functional.avg_pool3d(begin, (1, self.coarse, self.coarse)) for begin in starts]
                begun = descend(objective, small, -(-steps // 2), self.lr)
                starts, steps = [_resized(begun.flatten(0, 1), side).unflatten(0, (groups, -1))], steps // 2
            return descend(objective, starts, steps, self.lr)


def _resized(images: Tensor, side: Sequence[int]) -> Tensor:
    return nn.functional.interpolate(images, list(side), mode="bilinear", align_corners=False)


def _called(layers: int) -> str:
    if layers == ALL:
        return "k=all"
    return f"k={layers}" if layers > 0 else f"last={-layers}"
