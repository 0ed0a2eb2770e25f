"""Class probe: which class is in the image behind a single-image style?

Reference: StableFDG's Remark 1, "label information is not contained in the style statistics" (METHODS 4e, H-S1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.roles import Attack

from ._probe import probe
from ._reading import practise, vectors


@dataclass(frozen=True)
class ClassProbe(Attack):
    """A linear probe on the styles of single images; several images behind a style have no one class."""

    family: ClassVar[str] = "property"
    reads: ClassVar[tuple[str, ...]] = (StyleStatistics.kind,)
    headline: ClassVar[str] = "balanced_accuracy"
    higher_leaks: ClassVar[bool] = True
    threats: ClassVar[tuple[str, ...]] = ("server", "client", "third_party")
    sizes: ClassVar[tuple[int | None, ...]] = (1,)
    by_layer: ClassVar[bool] = True

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        made = practise(view, 0)
        labels = made.labels[torch.cat(list(made.members))]
        asked = vectors(view, questions)
        behind = torch.tensor([question.images_behind for question in questions])
        guesses = probe(made, labels, asked, behind, view.classes)
        share = labels.bincount(minlength=view.classes).float()
        blind = {"noise": list(torch.rand(30, view.classes, generator=rng)), "mean_image": [share / share.sum()]}
        return list(guesses), blind

    def chance(self, view: View, truth: Truth) -> float | None:
        return 1 / view.classes

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        """Hits, weighted so that their mean is the mean of the classes' hit rates."""
        labels = torch.stack([truth.labels[0] for truth in truths])
        count = labels.bincount()
        weight = len(labels) / (int((count > 0).sum()) * count[labels])
        hits = torch.tensor([float(g.argmax() == label) for g, label in zip(guesses, labels, strict=True)])
        return hits * weight
