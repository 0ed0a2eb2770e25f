"""Linkage: re-identifies the client of an artifact among all clients' artifacts of an earlier round (hypothesis H-S3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from sklearn.covariance import LedoitWolf
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import BatchNormStatistics, ImportanceWeights, ModelState, ModelUpdate
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.targets.simulator import HeldImages, Simulator
from fdgpriv.targets.target import Target
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.task import Predictions

_FAR = 3.0  # largest standardised value
_RIDGE = 0.1  # times the mean variance of an axis, added to every variance


@dataclass(frozen=True)
class Linkage(Attack):
    """Ranks the earlier artifacts by how likely the observed one is from the same client.

    Where artifacts of both rounds can be simulated cheaply, clients of public images practise: a Gaussian with a shrunken
    covariance is fitted to their pairs of artifacts, and the score is the log likelihood ratio of "a pair of one client"
    to "of two". Otherwise, or where practice shows it to link more, artifacts of each round are standardised about their
    median and whitened along the principal axes of the earlier ones, and the score is the cosine of the result: between
    rounds the model changes every client's artifact mostly in the same way, and axes shared by all clients of a domain
    weigh no more than others.

    The positive control is artifacts of the same clients simulated again, without defense.

    Attributes:
        simulations: Simulated clients of each domain; half of them choose between the two scores.
    """

    reads = (StyleStatistics, ModelState, ModelUpdate, ImportanceWeights, BatchNormStatistics)
    task = LinkedClient()
    threats = ("server",)
    group_sizes = (None,)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 20},
        "thorough": {"simulations": 200},
    }

    simulations: Annotated[int, Field(ge=4)] = 40

    def inapplicable(self, target: Target[Simulator]) -> str | None:
        if len(target.earlier) < 2:
            return f"no {target.kind.replace('_', ' ')} of the same clients crossed in two rounds that are kept"
        return None

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        # which round's model is irrelevant: it is the same for all, so subtracting the median removes it
        received_model = observations[0].received_model
        before = torch.stack([adversary.vector(artifact, received_model) for artifact in adversary.earlier])
        now = adversary.vectors(observations)
        pairs = self.practised(adversary, rng)
        learned = pairs is not None and _links_more(*pairs)
        predictions = likelihood_ratio(now, before, *pairs) if learned and pairs else likeness(now, before)
        ordinary = -_standard(before).square().sum(1)
        return Predictions(list(predictions), {"mean_image": [ordinary]})

    def practised(self, adversary: Adversary, rng: torch.Generator) -> tuple[Tensor, Tensor] | None:
        """Artifacts (S, D) of simulated clients in the last round and in the first; None where these are not simulated."""
        simulator = adversary.simulator(Simulator)  # type: ignore[type-abstract]
        first = simulator.in_first_round()
        if first is None:
            return None
        pairs: list[tuple[Tensor, Tensor]] = []
        for turn in range(self.simulations):
            for domain in adversary.held:
                size = adversary.sizes[turn % len(adversary.sizes)]
                index = torch.randperm(len(domain), generator=rng)[:size]
                held = HeldImages(domain.images, domain.labels)
                now, before = (one.vector(one.make(held, index, rng), None) for one in (simulator, first))
                pairs.append((now, before))
        now_rows, before_rows = zip(*pairs, strict=True)
        return torch.stack(now_rows), torch.stack(before_rows)


def _links_more(now: Tensor, before: Tensor) -> bool:
    """Whether the learned score links more of the second half of simulated clients than the other, fitted on the first."""
    half = len(now) // 2
    place = torch.arange(len(now) - half)
    learned = likelihood_ratio(now[half:], before[half:], now[:half], before[:half])
    plain = likeness(now[half:], before[half:])
    hits = [int((scores.argmax(1) == place).sum()) for scores in (learned, plain)]
    return hits[0] > hits[1]


def likelihood_ratio(now: Tensor, before: Tensor, seen_now: Tensor, seen_before: Tensor) -> Tensor:
    """Log likelihood ratios (M, N) of "of one client" to "of two", up to a constant.

    Args:
        now, before: Artifacts (M, D) and (N, D) of two rounds, each about its own mean.
        seen_now, seen_before: Pairs (S, D) of simulated clients, whose Gaussian is fitted.
    """
    dim = now.shape[1]
    spread_now, spread_before = (rows.std(0) + 1e-6 * rows.std() + 1e-12 for rows in (seen_now, seen_before))
    ours = ((now - now.mean(0)) / spread_now).clamp(-_FAR, _FAR).double()
    theirs = ((before - before.mean(0)) / spread_before).clamp(-_FAR, _FAR).double()
    pairs = torch.cat(
        [(seen_now - seen_now.mean(0)) / spread_now, (seen_before - seen_before.mean(0)) / spread_before], 1
    )
    covariance = torch.from_numpy(LedoitWolf(assume_centered=True).fit(pairs.double().numpy()).covariance_)
    joint = torch.linalg.inv(covariance)
    own = joint[:dim, :dim] - torch.linalg.inv(covariance[:dim, :dim])
    other = joint[dim:, dim:] - torch.linalg.inv(covariance[dim:, dim:])
    quadratic = ((ours @ own) * ours).sum(1)[:, None] + ((theirs @ other) * theirs).sum(1)
    ratio: Tensor = (-0.5 * quadratic - ours @ joint[:dim, dim:] @ theirs.T).float()
    return ratio


def likeness(now: Tensor, before: Tensor) -> Tensor:
    """Cosines (M, N) of the artifacts (M, D) of one round with those (N, D) of another, standardised and whitened."""
    ours, theirs = _standard(now), _standard(before)
    axes = torch.linalg.svd(theirs - theirs.mean(0), full_matrices=False)
    variance = axes.S.square() / len(theirs)
    white = axes.Vh.T / (variance + _RIDGE * variance.mean()).sqrt()
    ours, theirs = (torch.nn.functional.normalize(rows @ white, dim=1) for rows in (ours, theirs))
    return ours @ theirs.T


def _standard(rows: Tensor) -> Tensor:
    """Rows (M, D) about their median, in units of the median absolute deviation, clipped to _FAR to limit outliers."""
    center = rows.median(0).values
    spread = (rows - center).abs().median(0).values
    return ((rows - center) / (spread + 1e-2 * spread.mean() + 1e-12)).clamp(-_FAR, _FAR)
