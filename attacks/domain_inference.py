"""Domain inference: from which source domain are the images behind this artifact?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import ModelState, StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.kinds import AmplitudeSpectrum, ClientEmbedding, ValidationMetrics
from fdgpriv.roles import Attack
from fdgpriv.states import (
    BatchNormStatistics,
    ClassifierHead,
    ImportanceWeights,
    LabelMarginal,
    ModelUpdate,
    RepresentationTranslator,
)
from fdgpriv.subjects import Craft, Subject

from ._probe import probe
from ._reading import Vectors, practise, sizes_of, vectors, want_practice
from ._simulated import simulated


@dataclass(frozen=True)
class DomainInference(Attack):
    """Tells domains apart by a linear probe on artifacts of the same size, practised on public images of each domain.

    Attributes:
        practice: Practice artifacts of each size.
        practice_costly: As many where making one takes a training.
    """

    family: ClassVar[str] = "property"
    reads: ClassVar[tuple[str, ...]] = (
        *(StyleStatistics.kind, ModelState.kind),
        *(ModelUpdate.kind, ClassifierHead.kind, ImportanceWeights.kind, ClientEmbedding.kind),
        *(BatchNormStatistics.kind, RepresentationTranslator.kind),
        *(AmplitudeSpectrum.kind, LabelMarginal.kind, ValidationMetrics.kind),
    )
    headline: ClassVar[str] = "accuracy"
    higher_leaks: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    lines: ClassVar[tuple[str, ...]] = ("domain",)
    threats: ClassVar[tuple[str, ...]] = ("server",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"practice_costly": 6}}

    practice: int = 90
    practice_costly: int = 12

    def __post_init__(self) -> None:
        want_practice(self.name(), self.practice, self.practice_costly)

    def sizes_on(self, subject: Subject[Craft]) -> tuple[int | None, ...]:
        return sizes_of(subject, self.sizes)

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        made, domains = self._practised(view, questions[0].sent, rng)
        asked = vectors(view, questions)
        behind = torch.tensor([question.images_behind for question in questions])
        guesses = probe(made, domains, asked, behind, len(view.sources))
        count = len(view.sources)
        share = torch.tensor([len(domain) for domain in view.auxiliary], dtype=torch.float32)
        return list(guesses), {"noise": list(torch.rand(30, count, generator=rng)), "mean_image": _commonest(share)}

    def _practised(self, view: View, sent: ModelState | None, rng: torch.Generator) -> tuple[Vectors, Tensor]:
        """Artifacts to learn from, and the domain of each; where making one takes long, those that other readers use."""
        if not view.costly:
            made = practise(view, self.practice)
            return made, torch.stack([made.domains[members[0]] for members in made.members])
        clients = [(c, size) for size in view.sizes for c in simulated(view, size, self.practice_costly, sent)]
        inputs, sizes = torch.stack([c.vector for c, _ in clients]), torch.tensor([size for _, size in clients])
        return Vectors(inputs, sizes), torch.tensor([c.domain for c, _ in clients])

    def chance(self, view: View, truth: Truth) -> float | None:
        return 1 / len(view.sources)

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return torch.tensor([float(g.argmax() == t.domain) for g, t in zip(guesses, truths, strict=True)])


def _commonest(share: Tensor) -> list[Guess]:
    """Always the commonest domain; where several are within a tenth of it, each of them in turn."""
    level = (share >= 0.9 * share.max()).nonzero().flatten()
    return list(torch.eye(len(share))[level])
