"""What every membership attack promises, and how it is marked: area under the curve, and hits at few false accusations."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.exam import Guess, Truth, View
from fdgpriv.finding import Measured
from fdgpriv.roles import Attack
from fdgpriv.verdict import clopper_pearson

FALSE_ACCUSATIONS = (0.01, 0.001)
NOISES = 30  # random orders of the pool: targets share their non-members, so that one order favours many alike


class MembershipAttack(Attack):
    """Guesses are a score of each suspect (N,), or of each image of the pool (P,); higher means "member"."""

    family: ClassVar[str] = "membership"
    headline: ClassVar[str] = "auc"
    higher_leaks: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    threats: ClassVar[tuple[str, ...]] = ("server", "client", "third_party")

    def chance(self, view: View, truth: Truth) -> float | None:
        return 0.5

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return auc(guesses, truths)

    def realism(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Measured]:
        return at_few_false_accusations(guesses, truths)


def blind(prior: Tensor, rng: torch.Generator) -> Mapping[str, list[Guess]]:
    """What is said of the pool without an artifact: random orders of it, and by how like the public mean each (P,) is."""
    return {"noise": list(torch.rand(NOISES, len(prior), generator=rng)), "mean_image": [prior]}


def like_the_mean(images: Tensor, public: Tensor) -> Tensor:
    """How like the mean of public images (N, 3, H, W) each of these images (P, 3, H, W) is, (P,), in pixels."""
    return -(images - public.mean(0)).square().mean(dim=(1, 2, 3))


def auc(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
    """How often (M,) a member scores above a non-member, of all their pairs; ties count half. 0.5 where one is missing.

    Args:
        guesses: A score of each suspect (N,), or of each image of the pool (P,); higher means "member".
        truths: Which suspects are members.
    """
    return torch.tensor([_area(*_apart(g, t)) for g, t in zip(guesses, truths, strict=True)], dtype=torch.float64)


def at_few_false_accusations(guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Measured]:
    """The share of members found while few others are accused, all targets judged by one threshold.

    The interval is Clopper and Pearson's. Null where the rate is below three false accusations' worth of others
    (AUDIT 5.6): even none seen would not show that it is met.
    """
    apart = [_apart(g, t) for g, t in zip(guesses, truths, strict=True)]
    members, others = torch.cat([inside for inside, _ in apart]), torch.cat([out for _, out in apart])
    return {f"tpr_at_fpr_{rate}": tpr_at_fpr(members, others, rate) for rate in FALSE_ACCUSATIONS}


def tpr_at_fpr(members: Tensor, others: Tensor, rate: float) -> Measured:
    """The share of members (N,) above a threshold that at most `rate` of the others (M,) exceed; `rate` is chance."""
    if not len(members) or rate * len(others) < 3 - 1e-9:
        reason = f"a false positive rate of {rate} wants at least {round(3 / rate):,} non-members, got {len(others):,}"
        return Measured(value=None, reason=reason, n=len(members), direction="higher_leaks")
    threshold = others.sort(descending=True).values[int(rate * len(others) + 1e-9)]
    found = clopper_pearson(int((members > threshold).sum()), len(members))
    assert found.lower is not None
    assert found.upper is not None
    ends = (found.lower, found.upper)
    return Measured(value=found.value, ci95=ends, n=len(members), direction="higher_leaks")


def _apart(guess: Guess, truth: Truth) -> tuple[Tensor, Tensor]:
    """Scores of members, and of the others."""
    scores = guess if len(guess) == len(truth.members) else guess[truth.suspects]
    return scores[truth.members].double(), scores[~truth.members].double()


def _area(members: Tensor, others: Tensor) -> float:
    if not len(members) or not len(others):
        return 0.5
    ranked = others.sort().values
    below, up_to = torch.searchsorted(ranked, members), torch.searchsorted(ranked, members, right=True)
    return float((below + up_to).double().mean() / 2 / len(others))
