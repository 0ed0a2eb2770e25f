"""Compares one run with the others of its report: the paired difference of attack scores on the same clients.

The evaluator assigns clients and shadow clients, draws targets and membership candidates, and pairs senders with
receivers from the seed, the target and the partition only. Two methods' runs with these in common are therefore
evaluated on the same clients, and on the same images of them where the artifacts have the same kind and cost. Pairs are
of one unit in both runs, and the interval is over clients: it does not cover the randomness of the two trainings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.scores import Scores
from fdgpriv.federation.transcript import Record
from fdgpriv.method import Method
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.interval import Array, mean_interval, unit_means
from fdgpriv.statistics.measured import Measured


@dataclass(frozen=True)
class Compared:
    """One attack by one adversary on one kind of artifact, in two runs.

    Attributes:
        mine, theirs: The findings.
        difference: Of the headline metric, mine minus theirs, over clients.
    """

    mine: AttackFinding
    theirs: AttackFinding
    difference: Measured

    def turned(self) -> "Compared":
        """The same with the two runs swapped."""
        return Compared(self.theirs, self.mine, _turned(self.difference))

    @property
    def rises(self) -> bool:
        """Whether mine leaks more, by the interval of the difference."""
        gain = self.difference if self.difference.direction == "higher_leaks" else _turned(self.difference)
        return gain.ci95 is not None and gain.ci95[0] > 0


@dataclass(frozen=True)
class RunComparison:
    """Another run of the report, with the same target, seed and defense.

    Attributes:
        spec: Its method, as on the command line.
        method: The method's name.
        settings: The method's configuration, by field.
        records: What crossed its wire.
        compared: What both runs were evaluated on.
    """

    spec: str
    method: str
    settings: Mapping[str, object]
    records: Sequence[Record]
    compared: Sequence[Compared]


def settings_of(method: Method) -> dict[str, object]:
    """The method's configuration, by field."""
    return {f.name: getattr(method, f.name) for f in fields(method)} if is_dataclass(method) else {}


def compared(
    mine: Mapping[str, AttackScores], theirs: Mapping[str, AttackScores], findings: Mapping[str, AttackFinding]
) -> list[Compared]:
    """The evaluations that two runs have in common; keys are ``CELL/EVALUATION``."""
    known = {key.partition("/")[2]: key for key in theirs}
    pairs = [(key, known[name]) for key in mine if (name := key.partition("/")[2]) in known]
    return [Compared(findings[key], findings[its], difference(mine[key], theirs[its])) for key, its in pairs]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Differences of the headline scores, mine minus theirs, of the units that two runs have in common.

    Attributes:
        gaps: (n,)
        clients: The client of each (n,).
        reason: Why there are none.
    """

    gaps: Sequence[float] = ()
    clients: Sequence[str] = ()
    reason: str | None = None

    def by_client(self) -> Array:
        """The mean difference of each client (G,)."""
        return unit_means(np.asarray(self.gaps), np.asarray(self.clients))


def pairs(mine: AttackScores, theirs: AttackScores) -> Pairs:
    """The score differences by unit, where the two are about the same artifacts and have units in common."""
    reason = mine.not_applicable or theirs.not_applicable
    if reason is None and mine.size != theirs.size:
        reason = "one is about whole clients, the other about single images"
    here, there = (_by_unit(run.by_size.get(run.size, Scores())) for run in (mine, theirs))
    both = [unit for unit in here if unit in there]
    if reason is None and not both:
        reason = "the two have no unit in common"
    if reason is not None:
        return Pairs(reason=reason)
    return Pairs([here[unit][1] - there[unit][1] for unit in both], [here[unit][0] for unit in both])


def difference(mine: AttackScores, theirs: AttackScores) -> Measured:
    """Of the headline metric, mine minus theirs: the mean over the units that both have, with its interval over clients."""
    found = pairs(mine, theirs)
    if found.reason is not None:
        return Measured(value=None, reason=found.reason, direction=mine.direction)
    mean = mean_interval(found.gaps, np.asarray(found.clients))
    return Measured(value=mean.value, ci95=mean.ends, n=mean.n, direction=mine.direction, reason=mean.reason)


def _turned(value: Measured) -> Measured:
    """The difference with the opposite sign."""
    if value.value is None:
        return value
    ends = None if value.ci95 is None else (-value.ci95[1], -value.ci95[0])
    return value.model_copy(update={"value": 0.0 - value.value, "ci95": ends})


def _by_unit(scores: Scores) -> dict[str, tuple[str, float]]:
    """By unit, its client and the attack's score."""
    values = scores.headline.get("attack", [])
    return {
        unit: (whose, value) for unit, whose, value in zip(scores.units, scores.clients, values, strict=bool(values))
    }
