"""Prototype labels: classes are those with a prototype, of more images the nearer it is to those of like clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.attack import Attack
from fdgpriv.tasks.label_shares import LabelShares, as_shares
from fdgpriv.utils.fields import PositiveInt

from ._prototypes import Deviations, features_of, peers_of

_TINY = 1e-9
_FAR = 20.0  # logarithm of a ratio of squared distances, at most


@dataclass(frozen=True)
class PrototypeLabels(Attack):
    """Expected shares over the classes that are there, times the inverse of each prototype's squared distance from its peers'.

    The mean of n images of a class is off by 1 / n of the variance of one. Distances are in units of the peers' mean distance
    for the class; their logarithms are averaged over rounds. Peers are the other clients with the nearest prototypes.

    Attributes:
        rounds: At most so many of the last rounds are read.
    """

    reads = (ClassPrototypes,)
    task = LabelShares()
    threats = ("server",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"thorough": {"rounds": 16}}

    rounds: PositiveInt = 8

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        shares = torch.stack([self._shares(adversary, observation) for observation in observations])
        return as_shares(shares, torch.tensor([observation.n_images for observation in observations]))

    def _shares(self, adversary: Adversary, observation: Observation) -> Tensor:
        """(K,): expected numbers of images, up to a factor."""
        present = features_of(observation.artifact).any(1)
        expected = adversary.hedged_shares.clamp_min(_TINY) * present
        view = adversary.view(observation)
        peers = peers_of(view[-1], len(adversary.sources))
        rounds = [Deviations.of(seen, peers) for seen in view[-self.rounds :]]
        distances = [_log_distance(deviations) for deviations in rounds if deviations is not None]
        return (expected.log() - torch.stack(distances).mean(0)).softmax(0) if distances else expected


def _log_distance(deviations: Deviations) -> Tensor:
    """(K,): log of the observed client's squared distance over the peers' mean log; 0 where it is not known."""
    logs = deviations.rows.square().sum(2).clamp_min(_TINY).log()
    of_peers, known = logs[1:], deviations.known[1:]
    mean = (of_peers * known).sum(0) / known.sum(0).clamp_min(1)
    return (logs[0] - mean).clamp(-_FAR, _FAR) * (deviations.known[0] & known.any(0))
