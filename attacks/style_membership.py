"""Style membership: infers whether an image is part of a shared average style, by the likelihood ratio of two Gaussians.

Reference: Homer et al. (PLoS Genetics 2008) and Sankararaman et al. (Nature Genetics 2009) on averages of genomes; here
on averages of styles (hypotheses H-S4 and H-C4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.tasks.membership import Members
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.fields import PositiveInt, TwoOrMore
from fdgpriv.view import SeenRound

from ._membership import unions
from ._replays import MembershipTest, Replays
from ._simulation import nearest_size


@dataclass(frozen=True)
class StyleMembership(Attack):
    """The likelihood of the style with the membership candidate among its n images, over the likelihood without it.

    All shared moments are written as averages over the client's images. A candidate's contribution is computed in
    simulated clients of other candidates of the same observation's domain, so that BatchNorm normalises it as in a
    client, under the model of each round. The candidates are the reference population: an average is explained by
    several of them together, which distinguishes a member from an image that only resembles members. The difference between
    simulated artifacts, defense included, and the mean contribution of their images is noise.

    Rounds are read together: their features are concatenated, with correlations between rounds in the covariances.

    Attributes:
        simulations: Simulated clients of each size and round; more where needed to include every candidate.
        rounds: Largest number of rounds that are read, evenly spaced, and no more than the style has images.
    """

    reads = (StyleStatistics, InterpolationStyle)
    task = Members()
    threats = ("server", "client", "third_party")
    ablations = ("rounds",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 12, "rounds": 2},
        "thorough": {"simulations": 100, "rounds": 16},
    }

    simulations: TwoOrMore = 24
    rounds: PositiveInt = 8

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        adversary.simulator(StyleSimulator)
        pools = {
            n: unions(
                [
                    observation.membership_candidates
                    for observation in observations
                    if nearest_size(adversary, observation) == n
                ]
            )
            for n in {nearest_size(adversary, observation) for observation in observations}
        }
        tests = Cache[MembershipTest]()
        predictions: list[Prediction] = []
        for observation in observations:
            n, candidates = nearest_size(adversary, observation), observation.membership_candidates
            pool = next(pool for pool in pools[n] if bool(torch.isin(candidates[:1], pool)))
            rounds = _evenly_spaced(adversary.view(observation), min(self.rounds, observation.n_images))
            test = tests.get(
                (
                    n,
                    observation.n_images,
                    candidates.numpy().tobytes(),
                    tuple(observation.number for observation in rounds),
                ),
                partial(self._test, adversary, rounds, pool, candidates, n, observation.n_images),
            )
            predictions.append(test.log_ratio([observation.artifact for observation in rounds]))
        return Predictions(predictions)

    def _test(
        self, adversary: Adversary, rounds: Sequence[SeenRound], pool: Tensor, candidates: Tensor, n: int, n_images: int
    ) -> MembershipTest:
        digest, images = adversary.cache.get(
            (Replays, pool.numpy().tobytes()), partial(_shared_images, adversary, pool)
        )

        def replay(round: SeenRound) -> Replays:
            return Replays.of(adversary, round, images, n, self.simulations)

        replays = [
            adversary.common_cache.get(
                (Replays, round.simulator, round.number, digest, n, self.simulations), partial(replay, round)
            )
            for round in rounds
        ]
        return MembershipTest(replays, torch.searchsorted(pool, candidates), n_images)


def _shared_images(adversary: Adversary, pool: Tensor) -> tuple[bytes, Tensor]:
    """The SHA-256 of the candidates at `pool` (P,), and the images (P, 3, H, W), the same tensor for all adversaries."""
    images = adversary.candidates[pool]
    digest = sha256(images.numpy().tobytes()).digest()
    return digest, adversary.common_cache.get((Replays, digest), lambda: images)


def _evenly_spaced(rounds: Sequence[SeenRound], count: int) -> list[SeenRound]:
    """At most `count` of the rounds, evenly spaced, the last one included."""
    count = max(1, min(count, len(rounds)))
    return [rounds[len(rounds) - 1 - i * (len(rounds) - 1) // max(1, count - 1)] for i in reversed(range(count))]
