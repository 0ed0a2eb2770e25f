"""What every membership attack promises, and how it is marked: area under the curve, and hits at few false accusations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.exam import Guess, Truth, View
from fdgpriv.finding import Measured
from fdgpriv.roles import Attack
from fdgpriv.verdict import clopper_pearson

FALSE_ACCUSATIONS = (0.01, 0.001)
_TOGETHER = 2048  # guesses scored at once
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
    found = torch.full((len(guesses),), 0.5, dtype=torch.float64)
    for places, members, others in _apart(guesses, truths):
        if members.shape[1] and others.shape[1]:
            found[places] = area(members, others)
    return found


def at_few_false_accusations(guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Measured]:
    """The share of members found while few others are accused, all targets judged by one threshold.

    The interval is Clopper and Pearson's. Null where the rate is below three false accusations' worth of others
    (AUDIT 5.6): even none seen would not show that it is met.
    """
    apart = list(_apart(guesses, truths))
    members = torch.cat([inside.flatten() for _, inside, _ in apart])
    others = torch.cat([out.flatten() for _, _, out in apart])
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


def _apart(guesses: Sequence[Guess], truths: Sequence[Truth]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Scores of members (G, m) and of the others (G, o), of guesses that have as many of each; and which guesses (G,)."""
    alike: dict[tuple[int, int], list[int]] = {}
    for place, truth in enumerate(truths):
        alike.setdefault((len(truth.members), int(truth.members.sum())), []).append(place)
    for (count, inside), places in alike.items():
        for some in torch.tensor(places).split(_TOGETHER):
            pairs = [(guesses[i], truths[i]) for i in some.tolist()]
            scores = torch.stack([g if len(g) == count else g[t.suspects] for g, t in pairs]).double()
            members = torch.stack([truth.members for _, truth in pairs])
            yield some, scores[members].view(len(some), inside), scores[~members].view(len(some), count - inside)


def area(members: Tensor, others: Tensor) -> Tensor:
    """(G,): the area under the curve of G sets of scores, of members (G, m) and of others (G, o)."""
    ranked = others.sort(dim=1).values
    below, up_to = torch.searchsorted(ranked, members), torch.searchsorted(ranked, members, right=True)
    return (below + up_to).double().mean(1) / 2 / others.shape[1]
