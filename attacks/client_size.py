"""Client size: infers how many images a client trains on.

BatchNorm counts the mini-batches that it has processed, and the counters are averaged and shared with the model. That
accuracies reveal a size is elementary; we know of no paper on federated domain generalization that mentions it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import STATISTICS, BatchNormStatistics, ModelState, ModelUpdate
from fdgpriv.artifacts.statistics import SampleCount, ValidationHistory, ValidationMetrics
from fdgpriv.attack import Attack
from fdgpriv.federation.held_out import held_out
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.bn_statistics import StatisticsSimulator
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.simulation.validation import ValidationSimulator
from fdgpriv.tasks.client_size import SizeOfClient

_COUNTER = STATISTICS[2]
_MAX_SIZE = 1 << 20  # images of a client that are considered
_MAX_HELD_OUT = 1 << 10  # held-out images that are considered
_ROUNDING_ERROR = 2.0**-24  # twice the largest float32 rounding error of a number up to 1


@dataclass(frozen=True)
class ClientSize(Attack):
    """Reads the number of images where it is shared, or bounds it by BatchNorm's counters or by accuracies.

    A client with n images takes t = E floor(n / B) steps, or E where n < B, so that n is in [B t/E, B (t/E + 1)), from
    1 on where t = E. Of this interval the prediction is the number nearest to the typical client size, which is public.
    A single image never changes a counter. Where clients recompute statistics in a separate pass, E is 1.

    Accuracies on held-out images are all k / m, where m is the number of these images: the least common denominator is
    m or a divisor of m. The share that is held out is public, so m bounds n too.
    """

    reads = (ModelState, ModelUpdate, SampleCount, BatchNormStatistics, ValidationMetrics)
    task = SizeOfClient()
    threats = ("server",)

    def inapplicable(self, series: ArtifactSeries[Simulator]) -> str | None:
        if series.kind in (SampleCount.kind, ValidationHistory.kind) or not series.wire:
            return None
        client, artifact = next(iter(series.wire.items()))
        if not any(name.endswith(_COUNTER) for name in artifact.tensors()):
            return "no counter of BatchNorm crosses with the model"
        simulator = series.simulator
        if isinstance(simulator, TrainingSimulator) and not _counted_steps(
            simulator, artifact, series.received_model[client]
        ):
            return "the counters of BatchNorm stand still in training"
        return None

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        return torch.tensor([float(self._size(adversary, observation)) for observation in observations])

    def _size(self, adversary: Adversary, observation: Observation) -> int:
        if isinstance(observation.artifact, SampleCount):
            return int(observation.artifact.count)
        if isinstance(observation.artifact, ValidationHistory):
            return self._by_accuracy(adversary, denominator(observation.artifact.values.tolist()))
        steps, counted = self._counted_batches(adversary, observation)
        if not counted:  # a batch of one image leaves the counters alone
            return 1
        smallest, largest = interval(steps, counted)
        return min(max(adversary.typical, smallest), largest)

    def _by_accuracy(self, adversary: Adversary, n_held_out: int) -> int:
        """The client size nearest to the typical one, given `n_held_out` held-out images; the typical size where
        `n_held_out` is 0 (unknown).
        """
        if not n_held_out:
            return adversary.typical
        share = adversary.simulator(ValidationSimulator).federation.held_out
        smallest, largest = interval(lambda n: held_out(n, share), n_held_out)
        return min(max(adversary.typical, smallest - n_held_out, 1), largest - n_held_out)

    def _counted_batches(self, adversary: Adversary, observation: Observation) -> tuple[Callable[[int], int], int]:
        """The number of batches as a function of the number of images, and the number of batches that was counted."""
        if isinstance(observation.artifact, BatchNormStatistics):
            statistics = adversary.simulator(StatisticsSimulator)
            return statistics.batches, statistics.seen(observation.artifact)
        simulator = adversary.simulator(TrainingSimulator)
        assert observation.received_model is not None
        return simulator.plain.steps, _counted_steps(simulator, observation.artifact, observation.received_model)


def denominator(shares: Sequence[float]) -> int:
    """The least m such that each of these numbers in [0, 1] is k / m, rounded to float32, for an integer k; 0 where
    there is none.

    Fractions of denominators up to `_MAX_HELD_OUT` are farther apart than float32 rounds, so that each number has at most one,
    and m is the least common multiple of their denominators.
    """
    fractions = [Fraction(share).limit_denominator(_MAX_HELD_OUT) for share in shares]
    if any(abs(float(fraction) - share) > _ROUNDING_ERROR for fraction, share in zip(fractions, shares, strict=True)):
        return 0
    common = math.lcm(*(fraction.denominator for fraction in fractions))
    return common if common <= _MAX_HELD_OUT else 0


def interval(steps: Callable[[int], int], counted: int) -> tuple[int, int]:
    """The least and the greatest number of images for which a client takes `counted` steps.

    Where no number gives exactly `counted` steps, both are the least number that gives more.

    Args:
        steps: Number of steps as a function of the number of images; never decreases.
        counted: At least 0.
    """
    smallest = _smallest(lambda n: steps(n) >= counted)
    return smallest, max(smallest, _smallest(lambda n: steps(n) > counted) - 1)


def _smallest(holds: Callable[[int], bool]) -> int:
    """The least number from 1 on for which the monotone predicate `holds` is true."""
    low, high = 0, 1
    while not holds(high) and high < _MAX_SIZE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _counted_steps(
    simulator: TrainingSimulator, artifact: ModelState | ModelUpdate | object, received_model: ModelState
) -> int:
    """How many mini-batches the client trained on, by the median of its counters."""
    assert isinstance(artifact, ModelState | ModelUpdate)
    change = simulator.change(artifact, received_model)
    counters = torch.stack([-tensor for name, tensor in change.items() if name.endswith(_COUNTER)])
    return max(0, round(float(counters.median())))
