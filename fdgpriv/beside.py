"""One run beside the others of its report: by how much more is told of the same clients, by pairs.

The evaluator deals clients and shadows, draws targets and suspects, and says who reads whom, from the seed, the target and
the partition alone. Two methods' runs with these in common are therefore asked about the same clients; about the same
images of them too, where the artifacts are of one kind and as costly to make. Pairs are of one unit in both runs, and
the interval is over clients: it covers no chance of the two trainings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from fdgpriv.exam.marks import Marks
from fdgpriv.exam.paper import Paper
from fdgpriv.finding import AttackFinding, Measured
from fdgpriv.roles import Method
from fdgpriv.transcript import Record
from fdgpriv.verdict import mean_interval


@dataclass(frozen=True)
class Compared:
    """One attack by one adversary on one kind of artifact, in two runs.

    Attributes:
        mine, theirs: What was found.
        difference: Of the headline metric, mine less theirs, over clients.
    """

    mine: AttackFinding
    theirs: AttackFinding
    difference: Measured

    def turned(self) -> "Compared":
        """The same, seen from the other run."""
        return Compared(self.theirs, self.mine, _turned(self.difference))

    @property
    def rises(self) -> bool:
        """Whether mine tells more, by the interval of the difference."""
        gain = self.difference if self.difference.direction == "higher_leaks" else _turned(self.difference)
        return gain.ci95 is not None and gain.ci95[0] > 0


@dataclass(frozen=True)
class Beside:
    """Another run of the report, with the same target, seed and defense.

    Attributes:
        spec: Its method, as the command line has it.
        method: The method's name.
        settings: By field, how it was configured.
        records: What crossed its wire.
        compared: What both runs were examined on.
    """

    spec: str
    method: str
    settings: Mapping[str, object]
    records: Sequence[Record]
    compared: Sequence[Compared]


def settings_of(method: Method) -> dict[str, object]:
    """By field, how it is configured."""
    return {f.name: getattr(method, f.name) for f in fields(method)} if is_dataclass(method) else {}


def compared(
    mine: Mapping[str, Paper], theirs: Mapping[str, Paper], findings: Mapping[str, AttackFinding]
) -> list[Compared]:
    """What two runs were both examined on; keys are ``CELL/EXAMINATION``."""
    known = {key.partition("/")[2]: key for key in theirs}
    pairs = [(key, known[asked]) for key in mine if (asked := key.partition("/")[2]) in known]
    return [Compared(findings[key], findings[its], difference(mine[key], theirs[its])) for key, its in pairs]


def difference(mine: Paper, theirs: Paper) -> Measured:
    """Of the headline metric, mine less theirs: the mean over clients of the units that both have, with its interval."""
    direction = "higher_leaks" if mine.attack.higher_leaks else "lower_leaks"
    reason = mine.not_applicable or theirs.not_applicable
    if reason is None and mine.size != theirs.size:
        reason = "one is about whole clients, the other about single images"
    here, there = (_by_unit(paper.marks.get(paper.size, Marks())) for paper in (mine, theirs))
    both = [unit for unit in here if unit in there]
    if reason is None and not both:
        reason = "the two have no unit in common"
    if reason is not None:
        return Measured(value=None, reason=reason, direction=direction)
    gaps = [here[unit][1] - there[unit][1] for unit in both]
    found = mean_interval(gaps, np.asarray([here[unit][0] for unit in both]))
    return Measured(value=found.value, ci95=found.ends, n=found.n, direction=direction, reason=found.reason)


def _turned(value: Measured) -> Measured:
    """The difference the other way round."""
    if value.value is None:
        return value
    ends = None if value.ci95 is None else (-value.ci95[1], -value.ci95[0])
    return value.model_copy(update={"value": 0.0 - value.value, "ci95": ends})


def _by_unit(marks: Marks) -> dict[str, tuple[str, float]]:
    """By unit, whose it is and what the attack scored."""
    values = marks.headline.get("attack", [])
    return {unit: (whose, value) for unit, whose, value in zip(marks.units, marks.clients, values, strict=bool(values))}
