"""Membership among a client's held-out images, by a Gaussian likelihood ratio on its evaluations of the models of all rounds.

Each evaluation is a mean over the held-out images: T of them are T equations about which images these are.
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

_SHRINKAGE = 1e-3  # of the mean variance, added to every variance


@dataclass(frozen=True)
class EvaluationMembership(Attack):
    """The likelihood of the evaluations with the candidate among the m held-out images, over that without.

    Each candidate is evaluated under the model of every round, with every label, as likely as the last model says. The
    candidates are the reference population, whose covariance over rounds tells a member from an image that resembles
    members. m follows from the public share of images that clients hold out.
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
            candidates = observation.membership_candidates
            key = (EvaluationMembership, candidates.numpy().tobytes())
            compute = partial(evaluations, simulator, adversary.candidates[candidates])
            of_each, likely = adversary.cache.get(key, compute)
            count = held_out_for(observation.n_images, simulator.federation.held_out)
            assert isinstance(observation.artifact, ValidationHistory)
            predictions.append(log_ratios(of_each, likely, observation.artifact.values, count))
        return predictions


def evaluations(simulator: EvaluationSimulator, images: Tensor) -> tuple[Tensor, Tensor]:
    """What each of N images would give if its label were each of K: (N, K, T); and the labels' probabilities (N, K)."""
    outputs, metric = simulator.outputs(images), METRIC_OF_EACH[simulator.metric]
    by_label = [
        torch.stack([metric(of_model, torch.full((len(images),), label)) for of_model in outputs], dim=1)
        for label in range(outputs[-1].shape[1])
    ]
    return torch.stack(by_label, dim=1), outputs[-1].softmax(1)


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
