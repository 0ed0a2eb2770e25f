"""Importance membership: whether an image is among those of shared importance weights, by a likelihood ratio.

Importances are averages over the client's images, as styles are (see `style_membership.py`).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.parameters import ImportanceWeights
from fdgpriv.attack import Attack
from fdgpriv.simulation.importance import ImportanceSimulator
from fdgpriv.simulation.mixture import identity
from fdgpriv.tasks.membership import Members
from fdgpriv.utils.fields import TwoOrMore

from ._membership import all_membership_candidates

_RIDGE = 0.01  # times the mean variance of an axis, added to every variance
_FINEST = 1e-6  # least variance of an axis, relative to the gradients' variance
_WHOLE = 0.98  # share of their length that importances keep which no defense cuts


@dataclass(frozen=True)
class ImportanceMembership(Attack):
    """The likelihood of the last layer's importances with the membership candidate among the n images, over that without.

    An adversary that observes importances knows the model that they were computed under, so it can compute the
    contribution of every public image and every membership candidate. It simulates clients of n public images, with and
    without the candidate, and pools them as the method does. The importances are modelled as a Gaussian around the
    simulated mean, along the axes on which simulated clients without the candidate differ. The candidate is assumed to
    be in the first batch, whose gradients may be summed before their sign is dropped. The domain is unknown, so the
    likelihoods are averaged over domains.

    Recomputed BatchNorm statistics of a client of n images are approximated by those of up to n public images, once for
    each domain; the candidate's own contribution to them is neglected.

    Limitation: the model fits the client's own images better than public ones, so public images approximate the
    client's other images poorly. This weakens the test on clients of many images.

    Attributes:
        public: Images used of each public domain.
        draws: Simulated clients of each domain without a candidate; a quarter as many with one.
    """

    reads = (ImportanceWeights,)
    task = Members()
    threats = ("server",)
    group_sizes = (1, 5, None)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"thorough": {"public": 60, "draws": 48}}

    public: TwoOrMore = 40
    draws: Annotated[int, Field(ge=8)] = 16

    def infer(
        self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
    ) -> list[Prediction]:
        simulator = adversary.simulator(ImportanceSimulator)
        some = [d.images[torch.randperm(len(d), generator=rng)[: self.public]] for d in adversary.domains if len(d)]
        alike: dict[Hashable, list[int]] = {}
        for i, observation in enumerate(observations):  # group the observations of the same importances
            alike.setdefault(identity(observation.sent), []).append(i)
        predictions: dict[int, Prediction] = {}
        for places in alike.values():
            group = [observations[i] for i in places]
            index = all_membership_candidates(group)
            received_model = group[0].received_model
            assert received_model is not None
            own, found = simulator.last(group[0].artifact), {}
            of_model = partial(
                simulator.last_layer_gradients, artifact=group[0].artifact, received_model=received_model
            )
            images, sizes = adversary.candidates[index], {observation.n_images for observation in group}
            if simulator.fresh_statistics:
                gradients = {n: _gradients(of_model, some, images, n) for n in sizes}
            else:
                gradients = dict.fromkeys(sizes, _gradients(of_model, some, images, None))
            for n, (public, candidates) in gradients.items():
                cut = adversary.surviving_share(n, simulator.last, received_model) < _WHOLE
                simulated = Simulated(simulator, public, n, self.draws, rng, cut)
                found[n] = simulated.log_ratio(own, candidates)
            for i, observation in zip(places, group, strict=True):
                predictions[i] = found[observation.n_images][
                    torch.searchsorted(index, observation.membership_candidates)
                ]
        return [predictions[i] for i in range(len(observations))]


def _gradients(
    of_model: Callable[..., Tensor], public: list[Tensor], candidates: Tensor, n: int | None
) -> tuple[list[Tensor], list[Tensor]]:
    """By domain, the gradients of its public images and those of the candidates.

    Args:
        of_model: See `ImportanceSimulator.last_layer_gradients`.
        public: By domain, images.
        candidates: Images.
        n: Number of public images for the BatchNorm statistics; None if these are not recomputed.
    """

    def of(parts: list[Tensor], like: Tensor) -> list[Tensor]:
        gradients = of_model(torch.cat(parts), like=like).nan_to_num(0.0, 1e6, -1e6)
        return list(gradients.split([len(part) for part in parts]))

    if n is None:
        *by_domain, own = of([*public, candidates], candidates)
        return by_domain, [own] * len(public)
    both = [of([images, candidates], images[:n]) for images in public]
    return [one for one, _ in both], [other for _, other in both]


class Simulated:
    """Distribution of the importances of simulated clients of n images, each drawn from one domain's public images.

    Args:
        simulator: Pools per-image gradients into importances.
        public: By domain, gradients (P, D) of its images.
        n: Number of images of a client.
        draws: Number of clients of each domain.
        rng: Of the draws.
        cut: Whether the observed importances may have been shortened by a defense: they are then compared at the expected
            length, where they are shorter.
    """

    def __init__(
        self,
        simulator: ImportanceSimulator,
        public: Sequence[Tensor],
        n: int,
        draws: int,
        rng: torch.Generator,
        cut: bool = False,
    ) -> None:
        self.simulator, self.n, self.cut = simulator, n, cut
        clients = [
            [gradients[torch.randint(len(gradients), (n,), generator=rng)] for _ in range(draws)]
            for gradients in public
        ]
        pooled = torch.stack([torch.stack([simulator.pooled(one) for one in some]) for some in clients])
        few, first = [some[: draws // 4] for some in clients], min(n, simulator.batch)
        self.rest_of_batch = torch.stack([torch.stack([one[1:first].sum(0) for one in some]) for some in few])
        self.later = torch.zeros_like(self.rest_of_batch)
        if n > first:
            later = torch.stack([torch.stack([simulator.pooled(one[first:]) for one in some]) for some in few])
            self.later = (n - first) * later
        self.without = pooled.mean(1)
        rest = (pooled - self.without[:, None]).flatten(0, 1)
        self.unit = rest.square().mean(0).sqrt().clamp_min(1e-12)
        axes = torch.linalg.svd(rest / self.unit, full_matrices=False)
        variance = axes.S.square() / len(rest)
        variance = variance + _RIDGE * variance.mean()
        self.axes = axes.Vh.T
        self.outside, self.inside = variance + _FINEST, variance * (n - 1) / n + _FINEST

    def log_ratio(self, own: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        """(N,): log-likelihood of the importances (D,) with each of N candidates among the n images, minus that without.

        Args:
            own: The importances.
            candidates: By domain, gradients (N, D) of the candidates, under that domain's BatchNorm statistics.
        """
        expected = self._with(candidates)
        with_it = torch.stack([self._density(self._as_long(own, some) - some, self.inside) for some in expected])
        without = self._density(self._as_long(own, self.without) - self.without, self.outside)
        return with_it.logsumexp(0) - without.logsumexp(0)

    def _as_long(self, own: Tensor, expected: Tensor) -> Tensor:
        """The importances (D,), or where a defense may have cut them, (..., D) at least as long as expected ones (..., D)."""
        if not self.cut:
            return own
        longer: Tensor = (expected.norm(dim=-1, keepdim=True) / own.norm().clamp_min(1e-12)).clamp_min(1)
        return own * longer

    def _with(self, candidates: Sequence[Tensor]) -> list[Tensor]:
        """By domain, the mean importances (N, D) of clients whose first batch contains the candidate of each gradient
        (N, D).
        """
        found = []
        for rest_of_batch, later, own in zip(self.rest_of_batch, self.later, candidates, strict=True):
            first = self.simulator.pooled((rest_of_batch[:, None] + own)[:, :, None])
            found.append((first + later[:, None]).mean(0) / self.n)
        return found

    def _density(self, rest: Tensor, variance: Tensor) -> Tensor:
        """Log-density (...) of differences (..., D), along the axes (D, R) with these variances (R,)."""
        log: Tensor = -(((rest / self.unit) @ self.axes).square() / variance + variance.log()).sum(-1) / 2
        return log
