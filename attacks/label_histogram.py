"""Label histogram: how many images of each class are behind this artifact?

Reference: METHODS 4e, H-S2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from torch import Tensor

from fdgpriv.artifact import ModelState, StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.kinds import ClientEmbedding
from fdgpriv.roles import Attack
from fdgpriv.states import BatchNormStatistics, ClassifierHead, ImportanceWeights, LabelMarginal, ModelUpdate
from fdgpriv.subjects import Craft, Subject

from ._reading import public_images, sizes_of, vectors, want_practice
from ._simulated import ALPHAS, simulated


@dataclass(frozen=True)
class LabelHistogram(Attack):
    """Ridge regression from artifact to label distribution, practised on clients simulated from auxiliary images.

    How they are simulated: see `simulated`.

    Attributes:
        practice: Simulated clients of each size.
        practice_costly: As many where simulating one takes a training.
        alphas: Concentrations: below 1 a few classes, 100 nearly even.
    """

    family: ClassVar[str] = "property"
    reads: ClassVar[tuple[str, ...]] = (
        *(StyleStatistics.kind, ModelState.kind),
        *(ModelUpdate.kind, ClassifierHead.kind, ImportanceWeights.kind, ClientEmbedding.kind),
        *(BatchNormStatistics.kind, LabelMarginal.kind),
    )
    headline: ClassVar[str] = "l1"
    higher_leaks: ClassVar[bool] = False
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 2.0)
    threats: ClassVar[tuple[str, ...]] = ("server", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"practice": 30, "practice_costly": 6}}

    practice: int = 300
    practice_costly: int = 20
    alphas: tuple[float, ...] = ALPHAS

    def __post_init__(self) -> None:
        want_practice(self.name(), self.practice, self.practice_costly)
        if not self.alphas or min(self.alphas) <= 0:
            raise ValueError(f"label_histogram.alphas: want numbers above 0, got {self.alphas}")

    def sizes_on(self, subject: Subject[Craft]) -> tuple[int | None, ...]:
        return sizes_of(subject, self.sizes)

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        count = self.practice_costly if view.costly else self.practice
        asked = vectors(view, questions)
        behind = torch.tensor([question.images_behind for question in questions])
        known = torch.tensor(view.sizes)
        reader = known[(behind[:, None] - known[None, :]).abs().argmin(1)]
        guesses = torch.empty(len(questions), view.classes)
        for size in reader.unique().tolist():
            clients = simulated(view, size, count, questions[0].sent, self.alphas)
            inputs, shares = (torch.stack(rows) for rows in zip(*((c.vector, c.shares) for c in clients), strict=True))
            center, spread = inputs.mean(0), inputs.std(0) + 1e-8
            model = RidgeCV(alphas=np.logspace(-1, 4, 11)).fit(((inputs - center) / spread).numpy(), shares.numpy())
            read = reader == size
            told = torch.from_numpy(model.predict(((asked[read] - center) / spread).numpy())).float().clamp_min(0)
            guesses[read] = told / told.sum(1, keepdim=True).clamp_min(1e-9)
        mean = public_images(view)[1].bincount(minlength=view.classes).float()
        noise = torch.rand(10, view.classes, generator=rng)
        blind = {"noise": list(noise / noise.sum(1, keepdim=True)), "mean_image": [mean / mean.sum()]}
        return list(guesses), blind

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return torch.stack(
            [(g.double() - t.histogram).abs().sum().clamp_max(2) for g, t in zip(guesses, truths, strict=True)]
        )
