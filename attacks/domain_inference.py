"""Domain inference: from which source domain are the images behind this artifact?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import ModelState, StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.roles import Attack
from fdgpriv.states import ClassifierHead, ImportanceWeights, ModelUpdate
from fdgpriv.subjects import Craft, Subject

from ._probe import probe
from ._reading import practise, sizes_of, vectors, want_practice


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
        *(ModelUpdate.kind, ClassifierHead.kind, ImportanceWeights.kind),
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
        count = self.practice_costly if view.costly else self.practice
        made = practise(view, count, rng, sent=questions[0].sent)
        domains = torch.stack([made.domains[members[0]] for members in made.members])
        asked = vectors(view, questions)
        behind = torch.tensor([question.images_behind for question in questions])
        guesses = probe(made, domains, asked, behind, len(view.sources))
        count = len(view.sources)
        share = torch.tensor([len(domain) for domain in view.auxiliary], dtype=torch.float32)
        return list(guesses), {"noise": list(torch.rand(30, count, generator=rng)), "mean_image": _commonest(share)}

    def chance(self, view: View, truth: Truth) -> float | None:
        return 1 / len(view.sources)

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return torch.tensor([float(g.argmax() == t.domain) for g, t in zip(guesses, truths, strict=True)])


def _commonest(share: Tensor) -> list[Guess]:
    """Always the commonest domain; where several are within a tenth of it, each of them in turn."""
    level = (share >= 0.9 * share.max()).nonzero().flatten()
    return list(torch.eye(len(share))[level])
