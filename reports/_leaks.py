"""What the strongest attack learns of one secret, pooled over runs, with and without knowledge of the defense."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import Grade, highest
from fdgpriv.statistics.measured import Measured

from ._arms import Arm
from ._effects import Effect, of_questions
from ._numbers import pooled
from ._words import asked_of

Asked = Sequence[tuple[Run, Question]]


@dataclass(frozen=True)
class Leak:
    """What the strongest attack learns of one secret under one defense, pooled over the runs.

    Attributes:
        verdict: The worst of the question's verdicts.
        calls: In how many runs it has that verdict, of how many.
        amount: The lead over its best control, in effects that matter (1 is the least that does); None if nothing was tested.
        effect: The figure behind it.
        unaware: The figure of the same attack by an adversary that does not know the defense; None where there is none.
        unaware_amount: That adversary's lead in effects that matter.
        grade: The highest of the runs that call a leak; None where none does.
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
        """The amount, at least 0; None where it is not known."""
        return None if self.amount is None or self.amount.value is None else max(0.0, self.amount.value)


def strongest(arm: Arm, secret: str) -> Leak | None:
    """The worst question about this secret, and of equally bad ones that with the largest lead; None if there is none."""
    groups: dict[tuple[str, str, str], list[tuple[Run, Question]]] = {}
    for run in arm.runs:
        for q in run.questions:
            if q.secret == secret:
                groups.setdefault((asked_of(q), q.adversary, q.scope), []).append((run, q))
    leaks = [_leak(asked) for asked in groups.values()]
    return min(leaks, key=lambda leak: (WORST_FIRST.index(leak.verdict), -(leak.size or 0.0)), default=None)


def _leak(asked: Asked) -> Leak:
    verdict = min((q.verdict for _, q in asked), key=WORST_FIRST.index)
    scaled = [_scaled(q.lead, q.relevant) for _, q in asked if q.lead and q.relevant]
    effect = of_questions(asked)
    ignorant = _unaware(asked, effect) if effect else None
    relevant = next((q.relevant for _, q in asked if q.relevant), None)
    return Leak(
        verdict=verdict,
        calls=(sum(q.verdict == verdict for _, q in asked), len(asked)),
        amount=pooled(scaled),
        effect=effect,
        unaware=ignorant,
        unaware_amount=ignorant.lead / relevant if ignorant and relevant else None,
        grade=highest(grades) if (grades := [q.grade for _, q in asked if q.grade]) else None,
    )


def _scaled(lead: Measured, unit: float) -> Measured:
    """The lead in multiples of `unit`."""
    if lead.value is None:
        return lead
    ends = None if lead.ci95 is None else (lead.ci95[0] / unit, lead.ci95[1] / unit)
    return lead.model_copy(update={"value": lead.value / unit, "ci95": ends})


def _unaware(asked: Asked, knowing: Effect) -> Effect | None:
    """The same figure by the adversary that does not know the defense, averaged over the runs that have it."""
    found: list[tuple[float, str, float, float]] = []
    for run, q in asked:
        best = q.strongest
        row = next((run.attacks[i] for i in q.attacks if best and run.attacks[i].attack == best.attack), None)
        if row is not None and row.headline == knowing.metric and (one := _lead(row, q.scope)):
            found.append(one)
    if not found:
        return None
    values, names, controls, leads = zip(*found, strict=True)
    value, control, lead = (sum(each) / len(each) for each in (values, controls, leads))
    return replace(knowing, value=value, control=control, control_name=names[0], lead=lead, upper=None)


def _lead(row: AttackFinding, scope: str) -> tuple[float, str, float, float] | None:
    """The unaware adversary's figure, its best control with its name, and the lead over that."""
    test = row.leakage.get(scope)
    if row.unaware is None or row.unaware.value.value is None or test is None:
        return None
    value = row.unaware.value.value
    sign = -1 if row.unaware.value.direction == "lower_leaks" else 1
    controls = [
        (sign * figure.value, name)
        for name, figure in row.unaware.controls.items()
        if name in test.against and figure.value is not None
    ]
    if not controls:
        return None
    best, name = max(controls)
    return value, name, sign * best, sign * value - best
