"""Membership among a client's held-out images, from its evaluations of the models of all rounds: received or trained.

Each evaluation is a mean over the m held-out images: T of them are T equations about which images these are. The images that
solve them exactly are sought; where none are found, as behind noise, a Gaussian likelihood ratio ranks candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.statistics import ModelEvaluation, ValidationHistory
from fdgpriv.attack import Attack
from fdgpriv.federation.held_out import held_out_for
from fdgpriv.simulation.validation import METRIC_OF_EACH, EvaluationSimulator
from fdgpriv.tasks.membership import HeldOutMembers

from ._subset_sum import subset_of_mean

_SHRINKAGE = 1e-3  # of the mean variance, added to every variance
_LIKELY = 0.02  # probability of a label, by the last model, below which the search leaves it out
_MOST_LABELLED = 1200  # candidates with labels that the search tries, the most likely
_TOLERANCE = 1e-4  # standard deviations, up to which an exact mean differs from the evaluation by rounding


@dataclass(frozen=True)
class EvaluationMembership(Attack):
    """The m held-out images whose mean losses are the evaluations, above all others; else the likelihood of the evaluations
    with the candidate among the held-out images, over that without.

    Losses of T models name m images among hundreds, since their means are exact (`_subset_sum.py`). Accuracies, which many
    sets of images share, and evaluations that a defense alters are read by the ratio alone. Each candidate is evaluated
    under the model of every round, with every label, as likely as the last model says. The candidates are the reference
    population, whose covariance over rounds tells a member from an image that resembles members. m follows from the public
    share of images that clients hold out.
    """

    reads = (ModelEvaluation,)
    task = HeldOutMembers()
    threats = ("server",)
    group_sizes = (None,)

    def infer(
        self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
    ) -> list[Prediction]:
        simulator, predictions = adversary.simulator(EvaluationSimulator), list[Prediction]()
        for observation in observations:
            candidates, of_client = observation.membership_candidates, simulator.of(observation.received_model)
            key = (EvaluationMembership, id(of_client.models[-1]), candidates.numpy().tobytes())
            compute = partial(evaluations, of_client, adversary.candidates[candidates])
            of_each, likely = adversary.cache.get(key, compute)
            count = held_out_for(observation.n_images, simulator.federation.held_out)
            assert isinstance(observation.artifact, ValidationHistory)
            values, is_exact = observation.artifact.values, simulator.metric == "loss" and count > 1
            ratios = log_ratios(of_each, likely, values, count)
            solution = solved(of_each, likely, values, count) if is_exact else None
            if solution is not None:
                ratios[solution] += ratios.max() - ratios.min() + 1
            predictions.append(ratios)
        return predictions


def evaluations(simulator: EvaluationSimulator, images: Tensor) -> tuple[Tensor, Tensor]:
    """What each of N images would give if its label were each of K: (N, K, T); and the labels' probabilities (N, K)."""
    outputs, metric = simulator.outputs(images), METRIC_OF_EACH[simulator.metric]
    by_label = [
        torch.stack([metric(of_model, torch.full((len(images),), label)) for of_model in outputs], dim=1)
        for label in range(outputs[-1].shape[1])
    ]
    return torch.stack(by_label, dim=1), outputs[-1].softmax(1)


def solved(of_each: Tensor, likely: Tensor, means: Tensor, count: int) -> Tensor | None:
    """The `count` of N images whose evaluations have these means (T,); None where they are not found.

    Args:
        of_each: (N, K, T), by image and label.
        likely: (N, K) of the labels.
        means: (T,), exact but for rounding.
        count: m.
    """
    most = likely.flatten().topk(min(_MOST_LABELLED, likely.numel()))
    labelled = most.indices[most.values > _LIKELY]
    if len(labelled) < count:
        return None
    vectors, weights = of_each.flatten(0, 1)[labelled].double(), likely.flatten()[labelled].double()
    subset = subset_of_mean(vectors, means.double(), weights, count, _TOLERANCE)
    return None if subset is None else labelled[subset.members] // likely.shape[1]


def log_ratios(of_each: Tensor, likely: Tensor, means: Tensor, count: int) -> Tensor:
    """Log-likelihood ratios (N,) that a candidate is among the `count` images whose evaluations have these means (T,).

    With candidate x the means are normal around mu + (x - mu) / count, without it around mu, with covariance S / count;
    mu and S are those of the candidates' evaluations `of_each` (N, K, T) with labels that are `likely` (N, K).
    """
    weights = (likely.double() / len(likely))[..., None]
    rows = of_each.double()
    center = (weights * rows).sum((0, 1))
    deviations = rows - center
    covariance = torch.einsum("nkt,nks->ts", weights * deviations, deviations)
    shrunk = covariance + (_SHRINKAGE * covariance.diagonal().mean() + 1e-12) * torch.eye(len(means))
    solved = torch.linalg.solve(shrunk, deviations.flatten(0, 1).T).T.view_as(deviations)
    ratios = solved @ (means.double() - center) - (solved * deviations).sum(2) / (2 * count)
    joined: Tensor = torch.logsumexp(ratios + likely.double().clamp_min(1e-300).log(), dim=1).float()
    return joined
