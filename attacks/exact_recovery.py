"""Exact recovery: what a style says of the images behind it in closed form, where they are one or two.

Reference: METHODS 4b and 4e, H-S4: "exact recovery for n_k <= 2".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.roles import Attack

from ._algebra import two_values
from ._reading import held

RECOVERED = 1e-4  # of features, which are of the order of 1


@dataclass(frozen=True)
class ExactRecovery(Attack):
    """Solves for the styles of the images behind the artifact from its means and variances over them.

    A guess is two values of each number of a style (2, D): which of two images has which is not told, number by number.
    Where no variances are shared both are the mean, which is exact of one image only.
    Of more than two images the two values are only near their styles: a leak there is no recovery (see ``recovered``).
    """

    family: ClassVar[str] = "algebra"
    reads: ClassVar[tuple[str, ...]] = (StyleStatistics.kind,)
    headline: ClassVar[str] = "max_abs_error"
    higher_leaks: ClassVar[bool] = False
    threats: ClassVar[tuple[str, ...]] = ("server", "client")
    sizes: ClassVar[tuple[int | None, ...]] = (1, 2, None)

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        guesses = [solved(question.artifact) for question in questions]
        by_domain = {domain.name: torch.cat(view.styles(domain.images, domain.images), dim=1) for domain in held(view)}
        public = torch.cat(list(by_domain.values()))
        center, spread = public.mean(0), public.std(0)
        drawn = center + torch.randn(30, 2, len(center), generator=rng) * spread
        blind = {"noise": list(drawn), "mean_image": [two_values(center, torch.zeros_like(center))]}
        for name, styles in by_domain.items():
            blind[f"domain_mean:{name}"] = [styles.mean(0).repeat(2, 1)]
        return guesses, blind

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        """The largest distance of a number of the images' styles to the nearer of the two values guessed for it."""
        return torch.stack([_error(g, t) for g, t in zip(guesses, truths, strict=True)])

    def describe(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Tensor]:
        return {"recovered": (self.score(guesses, truths) < RECOVERED).float()}


def solved(artifact: object) -> Tensor:
    """(2, 2C): both values of each channel's mean, and of its standard deviation."""
    assert isinstance(artifact, StyleStatistics)
    some = len(artifact.mean_var) > 0
    mean_var, std_var = (artifact.mean_var, artifact.std_var) if some else (artifact.mean * 0, artifact.std * 0)
    return torch.cat([two_values(artifact.mean, mean_var), two_values(artifact.std, std_var)], dim=1)


def _error(guess: Tensor, truth: Truth) -> Tensor:
    styles = truth.alone[:, : guess.shape[1]]
    return (styles[:, None] - guess).abs().amin(1).max()
