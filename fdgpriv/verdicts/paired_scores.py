"""Differences of what two attacks score on the same clients, by pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fdgpriv.statistics.interval import Array, mean_interval, unit_means
from fdgpriv.statistics.measured import Measured
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.trial_scores import TrialScores


@dataclass(frozen=True, eq=False)
class PairedScores:
    """Differences of the headline scores, mine minus theirs, of the units that two runs have in common.

    Attributes:
        differences: (n,)
        clients: The client of each (n,).
        reason: Why there are none.
    """

    differences: Sequence[float] = ()
    clients: Sequence[str] = ()
    reason: str | None = None

    @classmethod
    def of(cls, mine: AttackScores, theirs: AttackScores) -> "PairedScores":
        """The score differences by unit, where the two are about the same artifacts and have units in common."""
        reason = mine.not_applicable or theirs.not_applicable
        if reason is None and mine.size != theirs.size:
            reason = "one is about whole clients, the other about single images"
        my_scores, their_scores = (_by_unit(attack) for attack in (mine, theirs))
        units = [unit for unit in my_scores if unit in their_scores]
        if reason is None and not units:
            reason = "the two have no unit in common"
        if reason is not None:
            return cls(reason=reason)
        return cls(
            [my_scores[unit][1] - their_scores[unit][1] for unit in units], [my_scores[unit][0] for unit in units]
        )

    def by_client(self) -> Array:
        """The mean difference of each client (G,)."""
        return unit_means(np.asarray(self.differences), np.asarray(self.clients))


def difference(mine: AttackScores, theirs: AttackScores) -> Measured:
    """Of the headline metric, mine minus theirs: the mean over the units that both have, with its interval over clients."""
    paired = PairedScores.of(mine, theirs)
    if paired.reason is not None:
        return Measured(value=None, reason=paired.reason, direction=mine.direction)
    mean = mean_interval(paired.differences, np.asarray(paired.clients))
    return Measured(value=mean.value, ci95=mean.ends, n=mean.n, direction=mine.direction, reason=mean.reason)


def _by_unit(attack: AttackScores) -> dict[str, tuple[str, float]]:
    """By unit, its client and the attack's score on the artifact on the wire."""
    scores = attack.by_size.get(attack.size, TrialScores())
    values = scores.headline.get("attack", [])
    return {
        unit: (client, value) for unit, client, value in zip(scores.units, scores.clients, values, strict=bool(values))
    }
