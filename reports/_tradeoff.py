"""Defenses compared: what each costs in accuracy and leaves of each secret, which are dominated, and DP at matched accuracy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fdgpriv.results.accuracy import accuracies
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Privacy
from fdgpriv.statistics.measured import Measured

from ._arms import Arm, arms
from ._leaks import Leak, strongest
from ._words import SECRETS

LOSS = 0.02  # of accuracy, that still counts as matched
_WORST_PROOF = ("violation", "saturated", "consistent", "not_measured", "no_guarantee")


@dataclass(frozen=True)
class Row:
    """One method under one defense.

    Attributes:
        arm: Its runs.
        accuracy: On the unseen domain: over seeds, of a single run over images.
        cost: Accuracy minus that without a defense, by pairs of target and seed.
        leaks: By secret that any row is asked for; None where this row shares nothing that a question could be about.
        attacked: Whether anything was asked.
        privacy: That of the run with the worst verdict on the proof.
        dominated_by: The name of a row that dominates this one.
        matched: Whether this is DP at matched accuracy.
    """

    arm: Arm
    accuracy: Measured | None
    cost: Measured | None
    leaks: Mapping[str, Leak | None]
    attacked: bool
    privacy: Privacy
    dominated_by: str | None = None
    matched: bool = False

    @property
    def level(self) -> float | None:
        """Its accuracy, where it is known."""
        return self.accuracy.value if self.accuracy else None

    def leakage(self) -> list[float | None]:
        """Of each secret the size of its leak: 0 where nothing is asked as nothing is shared, None where not known."""
        return [0.0 if leak is None else leak.size for leak in self.leaks.values()]


def rows(results: Results) -> tuple[Row, ...]:
    """One for each method and defense, with its marks."""
    every = arms(results.runs)
    found = {(one.method, one.defense): one for one in reversed(accuracies(results))}
    secrets = [s for s in SECRETS if any(q.secret == s for run in results.runs for q in run.questions)]
    plain = []
    for arm in every:
        over = found.get((arm.method, arm.defense))
        one = arm.runs[0].utility.target_accuracy if arm.runs[0].utility else None
        plain.append(
            Row(
                arm=arm,
                accuracy=one if len(arm.runs) == 1 or over is None else over.target,
                cost=over.cost if over else None,
                leaks={secret: strongest(arm, secret) for secret in secrets},
                attacked=any(run.questions for run in arm.runs),
                privacy=min((run.privacy for run in arm.runs), key=lambda p: _WORST_PROOF.index(p.verdict)),
            )
        )
    best = {id(matched(plain, method)) for method in {row.arm.method for row in plain}}
    return tuple(
        replace(row, dominated_by=next((o.arm.name for o in plain if dominates(o, row)), None), matched=id(row) in best)
        for row in plain
    )


def dominates(one: Row, other: Row) -> bool:
    """Whether `one` has at least the other's accuracy and at most its leakage on every secret, and is better in one.

    By the figures, whatever their intervals; of rows of one method, both attacked, with every figure known.
    """
    if one.arm.method != other.arm.method or not (one.attacked and other.attacked):
        return False
    if one.level is None or other.level is None:
        return False
    gains = [one.level - other.level]
    for mine, theirs in zip(one.leakage(), other.leakage(), strict=True):
        if mine is None or theirs is None:
            return False
        gains.append(theirs - mine)
    return min(gains) >= 0 and max(gains) > 0


def matched(found: Sequence[Row], method: str) -> Row | None:
    """Of this method's rows that prove an epsilon, the one with the smallest whose accuracy may be at most `LOSS` lower.

    The interval of the difference from no defense, by pairs, must not exclude that; with one seed the row's own interval
    over images must not, against the accuracy without a defense.
    """
    own = [row for row in found if row.arm.method == method]
    base = next((row for row in own if row.arm.defense == "none"), None)
    proved = [
        (epsilon, row)
        for row in own
        if (epsilon := row.privacy.epsilon_proved) is not None
        and row.privacy.verdict != "violation"
        and base is not None
        and _may_match(row, base)
    ]
    return min(proved, key=lambda pair: pair[0])[1] if proved else None


def _may_match(row: Row, base: Row) -> bool:
    if row.cost is not None and row.cost.ci95 is not None:
        return row.cost.ci95[1] >= -LOSS
    if row.accuracy is None or row.level is None or base.level is None:
        return False
    return (row.accuracy.ci95[1] if row.accuracy.ci95 else row.level) >= base.level - LOSS
