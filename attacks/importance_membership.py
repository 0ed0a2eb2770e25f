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
_MIN_VARIANCE = 1e-6  # of an axis, relative to the gradients' variance
_UNSHORTENED = 0.98  # relative length above which no defense shortens importances


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
        public_images = [
            domain.images[torch.randperm(len(domain), generator=rng)[: self.public]]
            for domain in adversary.domains
            if len(domain)
        ]
        by_importances: dict[Hashable, list[Observation]] = {}
        for observation in observations:
            by_importances.setdefault(identity(observation.sent), []).append(observation)
        predictions: dict[Observation, Prediction] = {}
        for group in by_importances.values():
            index = all_membership_candidates(group)
            log_ratios = self._log_ratios(adversary, group, public_images, adversary.candidates[index], rng)
            for observation in group:
                positions = torch.searchsorted(index, observation.membership_candidates)
                predictions[observation] = log_ratios[observation.n_images][positions]
        return [predictions[observation] for observation in observations]

    def _log_ratios(
        self,
        adversary: Adversary,
        observations: Sequence[Observation],
        public_images: list[Tensor],
        candidates: Tensor,
        rng: torch.Generator,
    ) -> dict[int, Tensor]:
        """By number of images of a client, log-likelihood ratios (N,) of candidates (N, 3, H, W), for the same importances."""
        simulator = adversary.simulator(ImportanceSimulator)
        artifact, received_model = observations[0].artifact, observations[0].received_model
        assert received_model is not None
        gradients_of = partial(simulator.last_layer_gradients, artifact=artifact, received_model=received_model)
        sizes = {observation.n_images for observation in observations}
        if simulator.fresh_statistics:
            gradients = {n: _gradients(gradients_of, public_images, candidates, n) for n in sizes}
        else:
            gradients = dict.fromkeys(sizes, _gradients(gradients_of, public_images, candidates, None))
        log_ratios = {}
        for n, (public, of_candidates) in gradients.items():
            is_shortened = adversary.surviving_share(n, simulator.last, received_model) < _UNSHORTENED
            simulated = SimulatedImportances(simulator, public, n, self.draws, rng, is_shortened)
            log_ratios[n] = simulated.log_ratio(simulator.last(artifact), of_candidates)
        return log_ratios


def _gradients(
    gradients_of: Callable[..., Tensor], public: list[Tensor], candidates: Tensor, n: int | None
) -> tuple[list[Tensor], list[Tensor]]:
    """By domain, the gradients of its public images and of the candidates.

    Args:
        gradients_of: See `ImportanceSimulator.last_layer_gradients`.
        public: By domain, its public images.
        candidates: Candidate images.
        n: Number of public images for the BatchNorm statistics; None if these are not recomputed.
    """

    def split_gradients(parts: list[Tensor], normalised_like: Tensor) -> list[Tensor]:
        gradients = gradients_of(torch.cat(parts), like=normalised_like).nan_to_num(0.0, 1e6, -1e6)
        return list(gradients.split([len(part) for part in parts]))

    if n is None:
        *by_domain, candidate_gradients = split_gradients([*public, candidates], candidates)
        return by_domain, [candidate_gradients] * len(public)
    pairs = [split_gradients([images, candidates], images[:n]) for images in public]
    return [public_gradients for public_gradients, _ in pairs], [
        candidate_gradients for _, candidate_gradients in pairs
    ]


class SimulatedImportances:
    """Distribution of the importances of simulated clients of n images, each client from the public images of one domain.

    Args:
        simulator: Pools per-image gradients into importances.
        public: By domain, gradients (P, D) of its images.
        n: Number of images of a client.
        draws: Number of clients of each domain.
        rng: Draws the clients' images.
        is_shortened: Whether a defense may have shortened the observed importances; where they are shorter than expected,
            they are then compared at the expected length.
    """

    def __init__(
        self,
        simulator: ImportanceSimulator,
        public: Sequence[Tensor],
        n: int,
        draws: int,
        rng: torch.Generator,
        is_shortened: bool = False,
    ) -> None:
        self.simulator, self.n, self.is_shortened = simulator, n, is_shortened
        clients = [
            [gradients[torch.randint(len(gradients), (n,), generator=rng)] for _ in range(draws)]
            for gradients in public
        ]
        importances = torch.stack(
            [torch.stack([simulator.pooled(gradients) for gradients in of_domain]) for of_domain in clients]
        )
        client_subset, first_batch = [of_domain[: draws // 4] for of_domain in clients], min(n, simulator.batch)
        self.rest_of_batch = torch.stack(
            [torch.stack([gradients[1:first_batch].sum(0) for gradients in of_domain]) for of_domain in client_subset]
        )
        self.later = torch.zeros_like(self.rest_of_batch)
        if n > first_batch:
            later = torch.stack(
                [
                    torch.stack([simulator.pooled(gradients[first_batch:]) for gradients in of_domain])
                    for of_domain in client_subset
                ]
            )
            self.later = (n - first_batch) * later
        self.without = importances.mean(1)
        deviations = (importances - self.without[:, None]).flatten(0, 1)
        self.scale = deviations.square().mean(0).sqrt().clamp_min(1e-12)
        axes = torch.linalg.svd(deviations / self.scale, full_matrices=False)
        variance = axes.S.square() / len(deviations)
        variance = variance + _RIDGE * variance.mean()
        self.axes = axes.Vh.T
        self.variance_without, self.variance_with = variance + _MIN_VARIANCE, variance * (n - 1) / n + _MIN_VARIANCE

    def log_ratio(self, importances: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        """(N,): log-likelihood of importances (D,) with each of N candidates among the n images, minus that without.

        Args:
            importances: (D,).
            candidates: By domain, gradients (N, D) of the candidates, under that domain's BatchNorm statistics.
        """
        expected = self._with_candidate(candidates)
        with_candidate = torch.stack(
            [self._density(self._lengthened(importances, mean) - mean, self.variance_with) for mean in expected]
        )
        without = self._density(self._lengthened(importances, self.without) - self.without, self.variance_without)
        return with_candidate.logsumexp(0) - without.logsumexp(0)

    def _lengthened(self, importances: Tensor, expected: Tensor) -> Tensor:
        """The importances (D,); if a defense may have shortened them, scaled to at least the length of `expected` (..., D)."""
        if not self.is_shortened:
            return importances
        factor: Tensor = (expected.norm(dim=-1, keepdim=True) / importances.norm().clamp_min(1e-12)).clamp_min(1)
        return importances * factor

    def _with_candidate(self, candidates: Sequence[Tensor]) -> list[Tensor]:
        """By domain, the mean importances (N, D) of clients whose first batch contains the candidate with each gradient
        (N, D).
        """
        expected = []
        for rest_of_batch, later, gradients in zip(self.rest_of_batch, self.later, candidates, strict=True):
            first_batch = self.simulator.pooled((rest_of_batch[:, None] + gradients)[:, :, None])
            expected.append((first_batch + later[:, None]).mean(0) / self.n)
        return expected

    def _density(self, differences: Tensor, variance: Tensor) -> Tensor:
        """Log-density (...) of differences (..., D), along the axes (D, R) with these variances (R,)."""
        log_density: Tensor = (
            -(((differences / self.scale) @ self.axes).square() / variance + variance.log()).sum(-1) / 2
        )
        return log_density
