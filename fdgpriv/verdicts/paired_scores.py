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
    """Differences of the headline scores, first minus second attack, of the units that both have.

    Attributes:
        differences: (n,)
        clients: The client of each (n,).
        reason: Why there are none.
    """

    differences: Sequence[float] = ()
    clients: Sequence[str] = ()
    reason: str | None = None

    @classmethod
    def of(cls, first: AttackScores, second: AttackScores) -> "PairedScores":
        """The score differences by unit, where the two are about the same artifacts and have units in common."""
        reason = first.not_applicable or second.not_applicable
        if reason is None and first.size != second.size:
            reason = "one is about whole clients, the other about single images"
        first_scores, second_scores = _by_unit(first), _by_unit(second)
        units = [unit for unit in first_scores if unit in second_scores]
        if reason is None and not units:
            reason = "the two have no unit in common"
        if reason is not None:
            return cls(reason=reason)
        return cls(
            [first_scores[unit][1] - second_scores[unit][1] for unit in units],
            [first_scores[unit][0] for unit in units],
        )

    def by_client(self) -> Array:
        """The mean difference of each client (G,)."""
        return unit_means(np.asarray(self.differences), np.asarray(self.clients))


def difference(first: AttackScores, second: AttackScores) -> Measured:
    """The mean difference of the headline metric, first minus second, over the units of both; its interval is over clients."""
    paired = PairedScores.of(first, second)
    if paired.reason is not None:
        return Measured(value=None, reason=paired.reason, direction=first.direction)
    mean = mean_interval(paired.differences, np.asarray(paired.clients))
    return Measured(value=mean.value, ci95=mean.ends, n=mean.n, direction=first.direction, reason=mean.reason)


def _by_unit(attack: AttackScores) -> dict[str, tuple[str, float]]:
    """By unit, its client and the attack's score on the artifact on the wire."""
    scores = attack.by_size.get(attack.size, TrialScores())
    values = scores.headline.get("attack", [])
    return {
        unit: (client, value) for unit, client, value in zip(scores.units, scores.clients, values, strict=bool(values))
    }
