"""Compares defenses: accuracy and its cost, leakage of each secret, dominated defenses, and DP at matched accuracy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fdgpriv.results.accuracy import accuracies
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Results
from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Privacy, Run
from fdgpriv.statistics.grades import Grade, highest
from fdgpriv.statistics.measured import Measured

from ._arms import Arm, arms
from ._bars import pooled_in_effects
from ._caveats import arm_guesses
from ._effects import Effect, pooled_effect
from ._words import SECRETS, artifact_of

_IN_CLEAR = 1e6  # in leads that matter, above any that an attack has
LOSS = 0.02  # of accuracy that counts as matched
_WORST_PROOF_FIRST = ("violation", "saturated", "consistent", "not_measured", "no_guarantee")


@dataclass(frozen=True)
class Leak:
    """What the strongest attack learns of one secret under one defense, pooled over the runs.

    Attributes:
        verdict: The worst verdict on the question over the runs.
        calls: The number of runs with this verdict, and of all runs.
        amount: The lead over the best control, in multiples of the least lead that matters; None if not tested.
        effect: The figures of the attack and its best control; None if not tested.
        unaware: The same for an adversary that does not know the defense; None if not measured.
        unaware_amount: That adversary's lead, in the same unit as `amount`.
        grade: The highest grade of the runs that call a leak; None if none does.
    """

    verdict: str
    calls: tuple[int, int]
    amount: Measured | None
    effect: Effect | None
    unaware: Effect | None = None
    unaware_amount: float | None = None
    grade: Grade | None = None

    @property
    def size(self) -> float | None:
        """The amount, at least 0; None if unknown. What is sent in clear is more than any lead."""
        if self.verdict == "sent_in_clear":
            return _IN_CLEAR
        return None if self.amount is None or self.amount.value is None else max(0.0, self.amount.value)


@dataclass(frozen=True)
class TradeoffRow:
    """One method under one defense.

    Attributes:
        arm: The method and defense, with their runs.
        accuracy: On the unseen domain: the mean over seeds, or that of a single run.
        cost: Accuracy minus that without a defense, by pairs of target and seed.
        leaks: By secret that any row is asked for; None if no artifact of this row exposes it.
        attacked: Whether any question was asked.
        privacy: Of the run whose verdict on the proof is worst.
        guesses: Whether its model does no better than guessing: then nothing is said of it in comparison.
        dominated_by: The name of a row that dominates this one.
        matched: Whether this row is DP at matched accuracy.
    """

    arm: Arm
    accuracy: Measured | None
    cost: Measured | None
    leaks: Mapping[str, Leak | None]
    attacked: bool
    privacy: Privacy
    guesses: bool = False
    dominated_by: str | None = None
    matched: bool = False

    @property
    def mean_accuracy(self) -> float | None:
        """The accuracy without its interval; None if unknown."""
        return self.accuracy.value if self.accuracy else None

    def leakage(self) -> list[float | None]:
        """The size of the leak of each secret: 0 if no artifact exposes it, None if unknown."""
        return [0.0 if leak is None else leak.size for leak in self.leaks.values()]


def tradeoff(results: Results) -> tuple[TradeoffRow, ...]:
    """One row for each method and defense; dominated rows and DP at matched accuracy are marked."""
    over_trainings = {(row.method, row.defense): row for row in reversed(accuracies(results))}
    secrets = [s for s in SECRETS if any(q.secret == s for run in results.runs for q in run.questions)]
    rows = []
    for arm in arms(results.runs):
        mean = over_trainings.get((arm.method, arm.defense))
        single = arm.runs[0].utility.target_accuracy if arm.runs[0].utility else None
        rows.append(
            TradeoffRow(
                arm=arm,
                accuracy=single if len(arm.runs) == 1 or mean is None else mean.target,
                cost=mean.cost if mean else None,
                leaks={secret: worst_leak(arm, secret) for secret in secrets},
                attacked=any(run.questions for run in arm.runs),
                privacy=min((run.privacy for run in arm.runs), key=lambda p: _WORST_PROOF_FIRST.index(p.verdict)),
                guesses=arm_guesses(arm),
            )
        )
    matched = {id(matched_dp(rows, method)) for method in {row.arm.method for row in rows}}
    return tuple(
        replace(
            row,
            dominated_by=next((other.arm.name for other in rows if dominates(other, row)), None),
            matched=id(row) in matched,
        )
        for row in rows
    )


def dominates(row: TradeoffRow, other: TradeoffRow) -> bool:
    """Whether `row` has at least the other's accuracy and at most its leakage on every secret, and is better in one.

    Intervals are ignored. Both rows must be attacked, of one method, have every figure, and do better than guessing.
    """
    if row.arm.method != other.arm.method or not (row.attacked and other.attacked) or row.guesses or other.guesses:
        return False
    if row.mean_accuracy is None or other.mean_accuracy is None:
        return False
    gains = [row.mean_accuracy - other.mean_accuracy]
    for leak, other_leak in zip(row.leakage(), other.leakage(), strict=True):
        if leak is None or other_leak is None:
            return False
        gains.append(other_leak - leak)
    return min(gains) >= 0 and max(gains) > 0


def matched_dp(rows: Sequence[TradeoffRow], method: str) -> TradeoffRow | None:
    """The row with the smallest proved epsilon whose accuracy may be at most `LOSS` below that without a defense.

    The interval of the difference by pairs must not exclude that. With one seed the upper end of the accuracy's interval
    over images must reach the accuracy without a defense minus `LOSS`.
    """
    of_method = [row for row in rows if row.arm.method == method]
    base = next((row for row in of_method if row.arm.defense == "none"), None)
    candidates = [
        (epsilon, row)
        for row in of_method
        if (epsilon := row.privacy.epsilon_proved) is not None
        and row.privacy.verdict != "violation"
        and base is not None
        and _may_match(row, base)
    ]
    return min(candidates, key=lambda pair: pair[0])[1] if candidates else None


def _may_match(row: TradeoffRow, base: TradeoffRow) -> bool:
    if row.guesses or base.guesses:
        return False
    if row.cost is not None and row.cost.ci95 is not None:
        return row.cost.ci95[1] >= -LOSS
    if row.accuracy is None or row.mean_accuracy is None or base.mean_accuracy is None:
        return False
    highest_plausible = row.accuracy.ci95[1] if row.accuracy.ci95 else row.mean_accuracy
    return highest_plausible >= base.mean_accuracy - LOSS


def worst_leak(arm: Arm, secret: str) -> Leak | None:
    """The question about this secret with the worst verdict, then the largest lead; None without a question."""
    questions: dict[tuple[str, str, str], list[tuple[Run, Question]]] = {}
    for run in arm.runs:
        for q in run.questions:
            if q.secret == secret:
                questions.setdefault((artifact_of(q), q.adversary, q.scope), []).append((run, q))
    leaks = [_pooled_leak(answers) for answers in questions.values()]
    return min(leaks, key=lambda leak: (WORST_FIRST.index(leak.verdict), -(leak.size or 0.0)), default=None)


def _pooled_leak(answers: Sequence[tuple[Run, Question]]) -> Leak:
    """One question's answers in several runs, as one."""
    verdict = min((q.verdict for _, q in answers), key=WORST_FIRST.index)
    effect = pooled_effect(answers)
    unaware = _unaware_effect(answers, effect) if effect else None
    relevant = next((q.relevant for _, q in answers if q.relevant), None)
    grades = [q.grade for _, q in answers if q.grade]
    return Leak(
        verdict=verdict,
        calls=(sum(q.verdict == verdict for _, q in answers), len(answers)),
        amount=pooled_in_effects([q for _, q in answers]),
        effect=effect,
        unaware=unaware,
        unaware_amount=unaware.lead / relevant if unaware and relevant else None,
        grade=highest(grades) if grades else None,
    )


def _unaware_effect(answers: Sequence[tuple[Run, Question]], aware: Effect) -> Effect | None:
    """The effect for the adversary that does not know the defense, averaged over the runs that measure it."""
    figures: list[tuple[float, str, float, float]] = []
    for run, q in answers:
        name = q.strongest.attack if q.strongest else None
        attack = next((run.attacks[i] for i in q.attacks if run.attacks[i].attack == name), None)
        if attack is not None and attack.headline == aware.metric and (lead := _unaware_lead(attack, q.scope)):
            figures.append(lead)
    if not figures:
        return None
    values, names, controls, leads = zip(*figures, strict=True)
    value, control, lead = (sum(column) / len(column) for column in (values, controls, leads))
    return replace(aware, value=value, control=control, control_name=names[0], lead=lead, upper=None)


def _unaware_lead(attack: AttackFinding, scope: str) -> tuple[float, str, float, float] | None:
    """The unaware adversary's figure, its best control with its name, and the lead over that."""
    test = attack.leakage.get(scope)
    if attack.unaware is None or attack.unaware.value.value is None or test is None:
        return None
    value = attack.unaware.value.value
    sign = -1 if attack.unaware.value.direction == "lower_leaks" else 1
    controls = [
        (sign * figure.value, name)
        for name, figure in attack.unaware.controls.items()
        if name in test.against and figure.value is not None
    ]
    if not controls:
        return None
    best, name = max(controls)
    return value, name, sign * best, sign * value - best
