"""Compares one run with the others of its report: the paired difference of attack scores on the same clients.

The evaluator assigns clients and shadow clients, draws targets and membership candidates, and pairs senders with
receivers from the seed, the target and the partition only. Two methods' runs with these in common are therefore
evaluated on the same clients, and on the same images of them where the artifacts have the same kind and cost. Pairs are
of one unit in both runs, and the interval is over clients: it does not cover the randomness of the two trainings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

from fdgpriv.federation.transcript import Record
from fdgpriv.method import Method
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.measured import Measured
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.paired_scores import difference


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

    def swapped(self) -> "Compared":
        """The same with the two runs swapped."""
        return Compared(self.theirs, self.mine, _negated(self.difference))

    @property
    def rises(self) -> bool:
        """Whether mine leaks more, by the interval of the difference."""
        gain = self.difference if self.difference.direction == "higher_leaks" else _negated(self.difference)
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
    their_keys = {key.partition("/")[2]: key for key in theirs}
    return [
        Compared(findings[key], findings[their_key], difference(mine[key], theirs[their_key]))
        for key in mine
        if (their_key := their_keys.get(key.partition("/")[2])) is not None
    ]


def _negated(value: Measured) -> Measured:
    """The difference with the opposite sign."""
    if value.value is None:
        return value
    ends = None if value.ci95 is None else (-value.ci95[1], -value.ci95[0])
    return value.model_copy(update={"value": 0.0 - value.value, "ci95": ends})
