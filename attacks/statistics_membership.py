"""Membership in BatchNorm statistics that clients recompute, by a Gaussian likelihood ratio over all layers and rounds.

A layer's means and mean squares are averages over the client's images, as a style's are (see `style_membership.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.parameters import BatchNormStatistics, running
from fdgpriv.attack import Attack
from fdgpriv.simulation.bn_statistics import StatisticsSimulator
from fdgpriv.tasks.membership import Members
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.fields import PositiveInt
from fdgpriv.view import SeenRound, spaced

from ._batchnorm import BATCH_SIZE, image_mean_squares, mean_squares, normalise_as_one_batch
from ._membership import unions

_SHRINKAGE = 0.3  # added to the variance of each round's statistics, which is 1
_MIN_DEVIATION = 1e-9


@dataclass(frozen=True)
class StatisticsMembership(Attack):
    """The likelihood of the statistics with the membership candidate among the client's n images, over that without.

    Each candidate's statistics are computed under the model of each round, in a batch of candidates of its domain; for a
    single image, by itself. The candidates are the reference population, whose covariance tells a member from an image
    that only resembles members. Other clients' artifacts are not read: an image of another client is no member, which
    would reveal membership under a control's artifact too.

    Attributes:
        rounds: Largest number of rounds that are read, evenly spaced, the last one included.
    """

    reads = (BatchNormStatistics,)
    task = Members()
    threats = ("server",)
    group_sizes = (1, 5, None)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"rounds": 2}, "thorough": {"rounds": 100}}

    rounds: PositiveInt = 8

    def infer(
        self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
    ) -> list[Prediction]:
        pools = unions([observation.membership_candidates for observation in observations])
        tests = Cache[_StatisticsTest]()
        predictions = []
        for observation in observations:
            candidates = observation.membership_candidates
            pool = next(pool for pool in pools if bool(torch.isin(candidates[:1], pool)))
            complete = [seen for seen in adversary.view(observation) if seen.whole]
            rounds, by_itself = spaced(complete, self.rounds), observation.n_images == 1
            test = tests.get(
                (candidates.numpy().tobytes(), by_itself, tuple(seen.number for seen in rounds)),
                partial(_test, adversary, rounds, pool, candidates, by_itself),
            )
            predictions.append(test.log_ratio(rounds, observation.n_images))
        return predictions


def _test(
    adversary: Adversary, rounds: Sequence[SeenRound], pool: Tensor, candidates: Tensor, by_itself: bool
) -> "_StatisticsTest":
    """The test of these candidates, which are in `pool` (P,), whose statistics are computed once for each round."""
    positions, statistics = torch.searchsorted(pool, candidates), []
    for round in rounds:
        key = (StatisticsMembership, round.number, id(round.received_model), pool.numpy().tobytes(), by_itself)
        compute = partial(image_statistics, round, adversary.candidates[pool], by_itself)
        statistics.append(adversary.cache.get(key, compute))
    return _StatisticsTest(statistics, positions)


def image_statistics(round: SeenRound, images: Tensor, by_itself: bool) -> dict[str, Tensor]:
    """By BatchNorm layer, means and mean squares (N, 2C) of its inputs for each of N images of a domain.

    Args:
        round: The round with its model.
        images: (N, 3, H, W).
        by_itself: Whether each image is normalised by itself; else all images by their common statistics, as in one batch.
    """
    assert isinstance(round.simulator, StatisticsSimulator)
    assert round.received_model is not None
    network = round.simulator.network().eval()
    round.received_model.load_into(network)
    if not by_itself:
        normalise_as_one_batch(network, images[:: -(-len(images) // BATCH_SIZE)])
    return image_mean_squares(network, images, batch_statistics=by_itself)


class _StatisticsTest:
    """Log-likelihood ratios of N candidates, from their statistics in each round.

    With candidate x the statistics have mean m + (x - m) / n, without it m, and covariance S / n, m and S being those of
    the candidates. S is shrunk towards its diagonal.
    """

    def __init__(self, by_round: Sequence[Mapping[str, Tensor]], positions: Tensor) -> None:
        """By round and layer, the statistics (P, 2C) of images, where the images at `positions` (N,) are the candidates."""
        self._by_round, self._positions, count = by_round, positions, len(positions)
        gram, self._scales = torch.zeros(count, count, dtype=torch.float64), list[dict[str, tuple[Tensor, Tensor]]]()
        for by_layer in by_round:
            self._scales.append({})
            for name, rows in by_layer.items():
                of_candidates = rows[positions]
                center, unit = self._scales[-1][name] = (
                    of_candidates.mean(0),
                    of_candidates.std(0).clamp_min(_MIN_DEVIATION),
                )
                deviations = (of_candidates - center) / unit
                gram += deviations @ deviations.T
        self._inverse = torch.linalg.inv(gram / count + _SHRINKAGE * len(by_round) * torch.eye(count))
        self._lengths = (self._inverse * gram).sum(1)

    def log_ratio(self, rounds: Sequence[SeenRound], n: int) -> Tensor:
        """Log-likelihood ratios (N,) of the candidates, for a client of n images."""
        products = torch.stack([self._products(i, round) for i, round in enumerate(rounds)]).sum(0)
        ratios: Tensor = self._inverse @ products - self._lengths / (2 * n)
        return ratios.float()

    def _products(self, i: int, round: SeenRound) -> Tensor:
        """(N,): inner products of candidates' and client's deviations from m in one round, over the layers that the client
        recomputed.
        """
        assert round.received_model is not None
        shared, received = running(round.artifact.tensors()), running(round.received_model.state)
        products = torch.zeros(len(self._positions), dtype=torch.float64)
        for name, rows in self._by_round[i].items():
            if not torch.equal(shared[name][0], received[name][0]):
                center, unit = self._scales[i][name]
                deviations = ((mean_squares(*shared[name]).double() - center) / unit.square()).nan_to_num(0.0, 0.0, 0.0)
                products += (rows @ deviations)[self._positions] - center @ deviations
        return products
