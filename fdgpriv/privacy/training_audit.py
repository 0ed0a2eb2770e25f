"""Measures epsilon by canaries: in one training of a client, or in the updates of canary clients.

Two bounds are given. The one of one-run audits assumes nothing, and with these numbers finds about half of the epsilon of
Gaussian noise, less with Poisson sampling. The other is for Gaussian noise only, and nearly tight for it.

Reference: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, arXiv 2305.08846.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.federation import Federation
from fdgpriv.privacy.measured import Bound, gdp, held_out_counts
from fdgpriv.privacy.one_run import few_guesses, one_run_audit, one_run_ceiling
from fdgpriv.privacy.violation import violation

CLIENTS, DIM = 2048, 32  # canary clients, and entries of their models
_FAR = 1e3  # norm of a canary client's update, which the defense clips


@dataclass(frozen=True)
class CanaryAudit:
    """A one-run audit of a claimed epsilon.

    Attributes:
        bound: Lower bound on epsilon at 95 %, without assumptions.
        p: p-value of "epsilon is at most the claimed one", without assumptions.
        gaussian, gaussian_p: The same if the canaries' scores have independent Gaussian noise.
        ceiling: The bound of a perfect attack with as many canaries.
        canaries, guesses, correct: Their numbers.
    """

    bound: Bound
    p: float
    gaussian: Bound
    gaussian_p: float
    ceiling: float | None
    canaries: int
    guesses: int
    correct: int


def audited(scores: Tensor, included: Tensor, epsilon: float, delta: float, seed: int = 0) -> CanaryAudit:
    """The audit of a claimed (epsilon, delta).

    Args:
        scores: Of the canaries (m,); higher means "included".
        included: Whether each was (m,), by a fair coin.
        epsilon, delta: The claim.
        seed: Splits the canaries into those that choose the threshold of the Gaussian bound and those that test it.
    """
    count, values, coins = len(scores), scores.double().numpy(), included.numpy()
    audit = one_run_audit(values, coins, few_guesses(count), epsilon, delta)
    counts = held_out_counts(values[coins], values[~coins], delta, np.random.default_rng(seed), lower=gdp)
    return CanaryAudit(
        bound=audit.bound,
        p=audit.p,
        gaussian=gdp(counts, delta),
        gaussian_p=violation(lambda error: gdp(counts, delta, error), epsilon),
        ceiling=one_run_ceiling(count, audit.guesses, delta),
        canaries=count,
        guesses=audit.guesses,
        correct=audit.correct,
    )


def measured_by_training(
    defense: Defense, method: Any, federation: Federation, data: ClientData, rng: torch.Generator
) -> CanaryAudit | None:
    """DP audit with canaries in one client's training or release; None if the defense has no canaries or no guarantee.

    Args:
        defense: Calibrated to the run.
        method: As trained under the defense.
        federation: Builds the network.
        data: The client's.
        rng: Of the canaries and the training.
    """
    proved = defense.guarantee()
    canaries = None if proved.epsilon is None else defense.canaries(method, federation, data, rng)
    if canaries is None or proved.epsilon is None or proved.delta is None:
        return None
    return audited(*canaries, proved.epsilon, proved.delta)


def measured_by_updates(defense: Defense, releases: int, rng: torch.Generator) -> CanaryAudit | None:
    """DP audit of a client-level guarantee with canary clients; None if no proving part adds noise to models.

    Each canary client moves the received model along one direction, or by its coin the opposite way, in every round, and
    shares the model through the defense. The neighbouring datasets of the claim differ in all images of a client.

    Args:
        defense: Calibrated to the run.
        releases: Number of rounds.
        rng: Of the coins and the defense.
    """
    proved = defense.guarantee()
    if proved.epsilon is None or proved.delta is None or ModelState.kind not in proved.protects:
        return None
    if not any(part.alters(ModelState.kind) for part in defense.proving()):
        return None
    received = ModelState(client=SERVER, round=0, state={"weight": torch.zeros(DIM)})
    direction = torch.ones(DIM) / DIM**0.5
    coins = torch.rand(CLIENTS, generator=rng) < 0.5
    scores = torch.zeros(CLIENTS)
    for i, sign in enumerate((2.0 * coins - 1.0).tolist()):
        canary = ModelState(client=f"canary-{i}", round=0, state={"weight": sign * _FAR * direction})
        for _ in range(releases):
            shared = defense.protect(canary, rng, received)
            assert isinstance(shared, ModelState)
            scores[i] += shared.state["weight"] @ direction
    return audited(scores, coins, proved.epsilon, proved.delta)
