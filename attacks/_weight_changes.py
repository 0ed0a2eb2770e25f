"""Classifies trained models by the directions in which their convolutions and linear layers changed, round by round.

BatchNorm statistics tell a client's domain best. Where clients keep them, or where each client trains another model, the
domain is in how training changed the weights before the last layer: most of all in middle rounds, and over several rounds
together. The length of a change depends on the client's images and steps, so that only its direction is compared.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState, running
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.seeds import generator
from fdgpriv.view import SeenRound, spaced

from ._membership import received_model_of
from ._simulation import Vectors, probe, simulated_in_round

_DIMENSIONS = 2048  # of a sketched tensor


def tells_by_weights(adversary: Adversary, observations: Sequence[Observation]) -> bool:
    """Whether observations are trained models that lack BatchNorm statistics, or that were trained from different models."""
    simulator = adversary.simulator(Simulator)  # type: ignore[type-abstract]
    models = {id(observation.received_model): observation.received_model for observation in observations}
    if not isinstance(simulator, TrainingSimulator) or adversary.needs_all_clients or None in models.values():
        return False
    return len(models) > 1 or not running(observations[0].artifact.tensors())


def domains_by_weights(
    adversary: Adversary, observations: Sequence[Observation], simulations: int, rounds: int
) -> Tensor:
    """Log-probabilities (M, D) of each observation's domain, summed over rounds.

    Args:
        adversary: The adversary with its view of earlier rounds.
        observations: Trained models or updates, for which `tells_by_weights`.
        simulations: Simulated clients of each round and size.
        rounds: At most so many rounds are read, evenly spread and the last among them; the same ones of all observations.
    """
    views = [[seen for seen in adversary.view(observation) if seen.whole] for observation in observations]
    chosen = {seen.number for seen in spaced(max(views, key=len), rounds)}
    by_round: dict[int, list[tuple[int, SeenRound]]] = defaultdict(list)
    for i, view in enumerate(views):
        for seen in view:
            if seen.number in chosen:
                by_round[seen.number].append((i, seen))
    log_probabilities = torch.zeros(len(observations), len(adversary.sources))
    for seen_by_observation in by_round.values():
        positions, seen_rounds = zip(*seen_by_observation, strict=True)
        received = list({id(seen.received_model): received_model_of(seen) for seen in seen_rounds}.values())
        artifacts, domains = _simulated_changes(adversary, seen_rounds[0], received, simulations)
        changes = torch.stack(
            [directions(_trainer(seen), seen.artifact, received_model_of(seen)) for seen in seen_rounds]
        )
        n_images = torch.tensor([observations[i].n_images for i in positions])
        log_probabilities[list(positions)] += probe(artifacts, domains, changes, n_images, len(adversary.sources))
    return log_probabilities


def _simulated_changes(
    adversary: Adversary, seen: SeenRound, received: Sequence[ModelState], count: int
) -> tuple[Vectors, Tensor]:
    """Directions of the changes of `count` simulated clients of each size in this round, and their domains."""
    clients = [(size, turn) for size in adversary.sizes for turn in range(count)]
    rows = [
        adversary.cache.get(
            (_simulated_change, seen.number, size, turn, received[turn % len(received)]),
            partial(_simulated_change, adversary, seen, size, turn, received[turn % len(received)]),
        )
        for size, turn in clients
    ]
    domains = torch.tensor([turn % len(adversary.practice) for _, turn in clients])
    return Vectors(torch.stack(rows), torch.tensor([size for size, _ in clients])), domains


def _simulated_change(
    adversary: Adversary, seen: SeenRound, size: int, turn: int, received_model: ModelState
) -> Tensor:
    """(F,): direction of the change of a client of `size` images, simulated in this round from this model."""
    rng, domain = (
        generator(adversary.seed, 67, seen.number, size, turn),
        adversary.practice[turn % len(adversary.practice)],
    )
    artifact, _ = simulated_in_round(adversary, seen, domain, turn, size, received_model, rng)
    return directions(_trainer(seen), artifact, received_model)


def directions(simulator: TrainingSimulator, artifact: Artifact, received_model: ModelState) -> Tensor:
    """(F,): for each weight tensor before the last layer its change, sketched and scaled to length 1, concatenated.

    A network whose only weights are those of the last layer is compared by these.
    """
    change = simulator.change(artifact, received_model)
    weights = [name for name, tensor in change.items() if tensor.ndim > 1]
    before = [name for name in weights if name not in simulator.last_layer] or weights
    return torch.cat([nn.functional.normalize(_sketch(change[name].flatten()), dim=0) for name in before])


def _sketch(vector: Tensor) -> Tensor:
    """At most 2,048 signed sums of entries, which keep inner products on average (count sketch; Charikar et al., 2002)."""
    if len(vector) <= _DIMENSIONS:
        return vector
    rng = torch.Generator().manual_seed(len(vector))
    bucket = torch.randint(_DIMENSIONS, vector.shape, generator=rng)
    sign = torch.randint(2, vector.shape, generator=rng) * 2.0 - 1.0
    return torch.zeros(_DIMENSIONS).index_add_(0, bucket, vector * sign)


def _trainer(seen: SeenRound) -> TrainingSimulator:
    assert isinstance(seen.simulator, TrainingSimulator)
    return seen.simulator
