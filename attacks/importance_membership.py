"""Importance membership: did this image go into the importances that a client shared? A likelihood ratio by simulation.

Importances are averages over the client's images, as styles are (see `style_membership.py`): METHODS 7e, H-L5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.exam import Guess, Question, View
from fdgpriv.exam.heard import first_tensor
from fdgpriv.states import ImportanceWeights
from fdgpriv.subjects import ImportanceCraft

from ._asking import all_suspects
from ._membership import MembershipAttack, blind, like_the_mean
from ._reading import held, public_images

_RIDGE = 0.01  # of the mean variance of an axis
_FINEST = 1e-6  # least variance of an axis, in units of the slopes' own


@dataclass(frozen=True)
class ImportanceMembership(MembershipAttack):
    """Scores each suspect by how much likelier the last layer's importances are with it among the n images than without.

    Who sees importances sees the model they were taken under, so that it knows what every public image and every suspect
    alone would have added. Clients of n public images are simulated, with and without the suspect, and pooled as the
    method does; the importances are Gaussian around what these give on average, along the axes on which the clients
    without it differ. A suspect is taken to be in the first batch, whose gradients may be summed before their sign is
    dropped. Which domain the images are of is unknown, so the likelihoods are averaged over domains.

    Fresh BatchNorm statistics of a client of n images are taken of up to n public images, for each domain once; the suspect's
    own part in them is neglected.

    The model fits the client's own images better than public ones, so that these are no fair stand-ins for the others
    behind the importances: the weakness of this test on clients of many images.

    Attributes:
        public: Images looked at of each public domain.
        draws: Clients simulated of each domain, without a suspect; with one, a quarter.
    """

    reads: ClassVar[tuple[str, ...]] = (ImportanceWeights.kind,)
    threats: ClassVar[tuple[str, ...]] = ("server",)
    sizes: ClassVar[tuple[int | None, ...]] = (1, 5, None)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"public": 50, "draws": 16}}

    public: int = 60
    draws: int = 32

    def __post_init__(self) -> None:
        if self.public < 2:
            raise ValueError(f"importance_membership.public: want at least 2, got {self.public}")
        if self.draws < 8:
            raise ValueError(f"importance_membership.draws: want at least 8, got {self.draws}")

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        craft = view.craft(ImportanceCraft)
        some = [d.images[torch.randperm(len(d), generator=rng)[: self.public]] for d in held(view) if len(d)]
        alike: dict[int, list[int]] = {}
        for i, question in enumerate(questions):  # the same importances, wherever they stand
            alike.setdefault(first_tensor(question.artifact), []).append(i)
        guesses: dict[int, Guess] = {}
        for places in alike.values():
            asked = [questions[i] for i in places]
            index = all_suspects(asked)
            sent = asked[0].sent
            assert sent is not None
            own, found = craft.last(asked[0].artifact), {}
            for n in {question.images_behind for question in asked}:
                public, alone = [], []
                for images in some:
                    both = torch.cat([images, view.candidates[index]])
                    slopes = craft.slopes(both, asked[0].artifact, sent, images[:n]).nan_to_num(0.0, 1e6, -1e6)
                    public.append(slopes[: len(images)])
                    alone.append(slopes[len(images) :])
                found[n] = Simulated(craft, public, n, self.draws, rng).log_ratio(own, alone)
            for i, question in zip(places, asked, strict=True):
                guesses[i] = found[question.images_behind][torch.searchsorted(index, question.suspects)]
        prior = like_the_mean(view.candidates, public_images(view)[0])
        return [guesses[i] for i in range(len(questions))], blind(prior, rng)


class Simulated:
    """Clients of n images each, drawn from public ones of one domain.

    Args:
        craft: Pools slopes into importances.
        public: By domain, slopes (P, D) of its images.
        n: How many images.
        draws: How many clients of each domain.
        rng: Of the draws.
    """

    def __init__(
        self, craft: ImportanceCraft, public: Sequence[Tensor], n: int, draws: int, rng: torch.Generator
    ) -> None:
        self.craft, self.n = craft, n
        clients = [[slopes[torch.randint(len(slopes), (n,), generator=rng)] for _ in range(draws)] for slopes in public]
        pooled = torch.stack([torch.stack([craft.pooled(one) for one in some]) for some in clients])
        few, first = [some[: draws // 4] for some in clients], min(n, craft.batch)
        self.beside = torch.stack([torch.stack([one[1:first].sum(0) for one in some]) for some in few])
        self.later = torch.zeros_like(self.beside)
        if n > first:
            later = torch.stack([torch.stack([craft.pooled(one[first:]) for one in some]) for some in few])
            self.later = (n - first) * later
        self.without = pooled.mean(1)
        rest = (pooled - self.without[:, None]).flatten(0, 1)
        self.unit = rest.square().mean(0).sqrt().clamp_min(1e-12)
        axes = torch.linalg.svd(rest / self.unit, full_matrices=False)
        variance = axes.S.square() / len(rest)
        variance = variance + _RIDGE * variance.mean()
        self.axes = axes.Vh.T
        self.outside, self.inside = variance + _FINEST, variance * (n - 1) / n + _FINEST

    def log_ratio(self, own: Tensor, alone: Sequence[Tensor]) -> Tensor:
        """(N,): log-likelihood of the importances (D,) with each of N images among the n, less that without.

        Args:
            own: The importances.
            alone: By domain, slopes (N, D) of these images, under that domain's BatchNorm statistics.
        """
        with_it = torch.stack([self._density(own - some, self.inside) for some in self._with(alone)])
        without = self._density(own - self.without, self.outside)
        return with_it.logsumexp(0) - without.logsumexp(0)

    def _with(self, alone: Sequence[Tensor]) -> list[Tensor]:
        """By domain, (N, D): what clients share on average once one image of their first batch is each of these (N, D)."""
        found = []
        for beside, later, own in zip(self.beside, self.later, alone, strict=True):
            first = self.craft.pooled((beside[:, None] + own)[:, :, None])
            found.append((first + later[:, None]).mean(0) / self.n)
        return found

    def _density(self, rest: Tensor, variance: Tensor) -> Tensor:
        """(...): of differences (..., D), along the axes (D, R) with these variances (R,)."""
        log: Tensor = -(((rest / self.unit) @ self.axes).square() / variance + variance.log()).sum(-1) / 2
        return log
