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

from ._batchnorm import BATCH_SIZE, watched
from ._contributions import normalise_as_one_batch
from ._membership import unions

_SHRINKAGE = 0.3  # added to the variance of each round's statistics, which is 1
_LEAST = 1e-9


@dataclass(frozen=True)
class StatisticsMembership(Attack):
    """The likelihood of the statistics with the membership candidate among the client's n images, over that without.

    Each candidate's statistics are computed under the model of each round, in a batch of candidates of its domain; of a
    single image, by itself. The candidates are the reference population, whose covariance tells a member from an image
    that only resembles members. Other clients' artifacts are not read: who is among them is not among the client's, which
    would tell of membership under a control's artifact too.

    Attributes:
        rounds: At most so many rounds are read, evenly spaced, the last one included.
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
        tests = Cache[_Test]()
        predictions = []
        for observation in observations:
            candidates = observation.membership_candidates
            pool = next(pool for pool in pools if bool(torch.isin(candidates[:1], pool)))
            known = [seen for seen in adversary.view(observation) if seen.whole]
            view, alone = spaced(known, self.rounds), observation.n_images == 1
            test = tests.get(
                (candidates.numpy().tobytes(), alone, tuple(seen.number for seen in view)),
                partial(_test, adversary, view, pool, candidates, alone),
            )
            predictions.append(test.log_ratio(view, observation.n_images))
        return predictions


def _test(adversary: Adversary, view: Sequence[SeenRound], pool: Tensor, candidates: Tensor, alone: bool) -> "_Test":
    """The test of some of the candidates in `pool` (P,), whose statistics are computed once for each round."""
    places, of_rounds = torch.searchsorted(pool, candidates), []
    for seen in view:
        key = (StatisticsMembership, seen.number, id(seen.received_model), pool.numpy().tobytes(), alone)
        make = partial(image_statistics, seen, adversary.candidates[pool], alone)
        of_rounds.append(adversary.cache.get(key, make))
    return _Test(of_rounds, places)


@torch.no_grad()
def image_statistics(seen: SeenRound, images: Tensor, alone: bool) -> dict[str, Tensor]:
    """By BatchNorm layer, means and mean squares (N, 2C) of its inputs for each of N images of a domain.

    Args:
        seen: The round with its model.
        images: (N, 3, H, W).
        alone: Whether each is normalised by itself; else all by their common statistics, as in one batch.
    """
    assert isinstance(seen.simulator, StatisticsSimulator)
    assert seen.received_model is not None
    network = seen.simulator.network().eval()
    seen.received_model.load_into(network)
    if not alone:
        normalise_as_one_batch(network, images[:: -(-len(images) // BATCH_SIZE)])
    by_layer: dict[str, list[Tensor]] = {}
    for part in images.split(BATCH_SIZE):
        with watched(network, len(part), batch_statistics=alone) as moments:
            network(part)
        for name, (mean, variance) in moments.items():
            by_layer.setdefault(name, []).append(_mean_squares(mean, variance))
    return {name: torch.cat(rows).nan_to_num(0.0, 0.0, 0.0) for name, rows in by_layer.items()}


def _mean_squares(mean: Tensor, variance: Tensor) -> Tensor:
    """Means and mean squares (..., 2C) of means and variances (..., C)."""
    return torch.cat([mean, variance + mean.square()], dim=-1).double()


class _Test:
    """Log-likelihood ratios of N candidates, from their statistics in each round.

    With candidate x the statistics have mean m + (x - m) / n, without it m, and covariance S / n, m and S being those of
    the candidates. S is shrunk towards its diagonal.
    """

    def __init__(self, of_rounds: Sequence[Mapping[str, Tensor]], places: Tensor) -> None:
        """By round and layer, the statistics (P, 2C) of images, of which those at `places` (N,) are candidates."""
        self._of_rounds, self._places, count = of_rounds, places, len(places)
        gram, self._scales = torch.zeros(count, count, dtype=torch.float64), list[dict[str, tuple[Tensor, Tensor]]]()
        for by_layer in of_rounds:
            self._scales.append({})
            for name, rows in by_layer.items():
                own = rows[places]
                center, unit = self._scales[-1][name] = own.mean(0), own.std(0).clamp_min(_LEAST)
                away = (own - center) / unit
                gram += away @ away.T
        self._inverse = torch.linalg.inv(gram / count + _SHRINKAGE * len(of_rounds) * torch.eye(count))
        self._lengths = (self._inverse * gram).sum(1)

    def log_ratio(self, view: Sequence[SeenRound], n: int) -> Tensor:
        """(N,): of the candidates, for a client of n images."""
        along = torch.stack([self._products(turn, seen) for turn, seen in enumerate(view)]).sum(0)
        ratios: Tensor = self._inverse @ along - self._lengths / (2 * n)
        return ratios.float()

    def _products(self, turn: int, seen: SeenRound) -> Tensor:
        """(N,): inner products of candidates' and client's deviations from m in one round, over the layers that the client
        recomputed.
        """
        assert seen.received_model is not None
        shared, received = running(seen.artifact.tensors()), running(seen.received_model.state)
        found = torch.zeros(len(self._places), dtype=torch.float64)
        for name, rows in self._of_rounds[turn].items():
            if not torch.equal(shared[name][0], received[name][0]):
                center, unit = self._scales[turn][name]
                away = ((_mean_squares(*shared[name]) - center) / unit.square()).nan_to_num(0.0, 0.0, 0.0)
                found += (rows @ away)[self._places] - center @ away
        return found
