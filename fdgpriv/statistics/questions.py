"""The verdict on each question of a report, from the tests of the attacks that ask it.

A question's p is Simes' over its attacks; q corrects over all questions by Benjamini and Hochberg. A leak has q <= 0.05
and p <= 0.025. "No leak found" needs an attack that would have found one; everything else is inconclusive.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from fdgpriv.statistics.multiplicity import benjamini_hochberg, holm, simes
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.resolution import POWER
from fdgpriv.statistics.rule import NoBound, Test

Verdict: TypeAlias = Literal["leak", "no_leak_found", "inconclusive", "not_applicable"]
Because: TypeAlias = Literal["weak_attack", "too_coarse", "not_after_correction", "failed"]

FALSE_DISCOVERIES = 0.05

_ROUNDING = 1e-9  # 0.7 - 0.5 is 0.19999999999999996


@dataclass(frozen=True)
class Evidence:
    """One attack's test on one question, and what says whether it would have found a leak.

    Attributes:
        test: Against every control of the question's scope.
        relevant: The least lead that matters, in the metric's unit.
        positive: The same attack with the same budget on artifacts that are known to leak; None where there are none.
        planted: How often it finds a leak of relevant size planted in these artifacts; None where that was not tried.
        budget: Its settings in words.
        relevant_there: The least lead that matters on the positive control, where it differs from `relevant`: a relative
            one is a share of what the public prior scores there.
    """

    test: Test
    relevant: float
    positive: Test | None = None
    planted: float | None = None
    budget: str = ""
    relevant_there: float | None = None

    @property
    def p(self) -> float | None:
        """Before any correction."""
        return self.test.p

    @property
    def wanted(self) -> float:
        """The least lead on the positive control with which it succeeds."""
        return self.relevant if self.relevant_there is None else self.relevant_there

    @property
    def works(self) -> bool:
        """Whether it succeeds on its positive control, with a lead that matters."""
        one = self.positive
        return one is not None and one.p is not None and one.p <= LEVEL and one.difference >= self.wanted - _ROUNDING

    @property
    def decided_by_planted_leak(self) -> bool:
        """Whether "no leak found" depends on a planted leak alone: no lead that matters is left open by the bound, or the
        attack gives no bound that says anything.
        """
        test = self.test
        return test.rests_on_planted_leak or (test.upper is not None and test.upper < self.relevant)

    @property
    def strength(self) -> float:
        """The lead on the positive control in relevant effects; 0 where there is none."""
        return 0.0 if self.positive is None or not self.wanted else self.positive.difference / self.wanted


@dataclass(frozen=True)
class Absent:
    """A question that cannot be tested, with the verdict that stands in its place and the reason in one sentence.

    `because` is why it is inconclusive, where it is.
    """

    reason: str
    verdict: Literal["inconclusive", "not_applicable"] = "inconclusive"
    because: Because = "too_coarse"


@dataclass(frozen=True)
class Answer:
    """The verdict on one question.

    Attributes:
        verdict: The answer.
        reason: In one sentence; of an inconclusive one, what would decide it.
        because: Why it is inconclusive.
        speaker: The attack that the verdict rests on: the strongest one, or of "no leak found" the one with the largest
            lead on its positive control.
        p: Simes' p of the question; q and p_holm correct it over all questions.
        beyond_doubt: Whether a leak passes Holm's correction at 0.025 too.
        marked: The attacks of a leaking question that leak on their own, after correction within it.
        error: The error level of the lead's interval, lower than 0.05 where it was selected for being a leak.
    """

    verdict: Verdict
    reason: str
    because: Because | None = None
    speaker: str | None = None
    p: float | None = None
    q: float | None = None
    p_holm: float | None = None
    beyond_doubt: bool = False
    marked: frozenset[str] = frozenset()
    error: float = 0.05


Asked: TypeAlias = Mapping[str, Evidence] | Absent
K = TypeVar("K", bound=Hashable)


def answers(questions: Mapping[K, Asked]) -> dict[K, Answer]:
    """The verdict on each question of a report, which are one family fixed before any result is seen.

    Args:
        questions: By key, the evidence by attack, or why there is none.
    """
    tested = {key: one for key, one in questions.items() if not isinstance(one, Absent) and _ps(one)}
    p = [simes(_ps(one)) for one in tested.values()]
    q, by_holm = (dict(zip(tested, found, strict=True)) for found in (benjamini_hochberg(p), holm(p)))
    raw = dict(zip(tested, p, strict=True))
    leaks = {key for key in tested if q[key] <= FALSE_DISCOVERIES and raw[key] <= LEVEL}
    selected = FALSE_DISCOVERIES * len(leaks) / max(1, len(tested))
    found = {}
    for key, one in questions.items():
        if isinstance(one, Absent):
            because: Because | None = one.because if one.verdict == "inconclusive" else None
            found[key] = Answer(one.verdict, one.reason, because)
        elif key not in tested:
            test = next(iter(one.values())).test
            found[key] = Answer("inconclusive", test.reason or "the test has no p", "too_coarse")
        elif key in leaks:
            found[key] = _leak(one, raw[key], q[key], by_holm[key], selected)
        else:
            found[key] = _no_leak(one, raw[key], q[key], by_holm[key])
    return found


def absence(evidence: Evidence) -> tuple[Verdict, Because | None, str]:
    """What a test that finds no leak says: none is there, or why that is not known and what would decide it."""
    test, relevant = evidence.test, evidence.relevant
    with_budget = f" with {evidence.budget}" if evidence.budget else ""
    if evidence.positive is None:
        return "inconclusive", "weak_attack", "no positive control says that the attack could succeed"
    if not evidence.works:
        lead, p = evidence.positive.difference, evidence.positive.p
        p_text = "no p" if p is None else f"p = {p:.2g}"
        if evidence.strength >= 1 and p is not None and p > LEVEL:
            units = evidence.positive.units
            reason = (
                f"on its positive control{with_budget} the attack leads by {lead:.3g}, which is enough, but over {units} "
                f"units that is {p_text}, want p <= {LEVEL}; more clients would decide"
            )
            return "inconclusive", "too_coarse", reason
        return (
            "inconclusive",
            "weak_attack",
            (
                f"the attack does not succeed on its positive control{with_budget}: its lead there is {lead:.3g} ({p_text}), "
                f"want {evidence.wanted:.3g} at p <= {LEVEL}; a larger budget or more auxiliary images would help"
            ),
        )
    if not evidence.decided_by_planted_leak:
        return "inconclusive", "too_coarse", _too_coarse(test, relevant)
    if evidence.planted is None or evidence.planted < POWER:
        share = "was not looked for" if evidence.planted is None else f"is found in {evidence.planted:.0%} of repeats"
        return (
            "inconclusive",
            "weak_attack",
            (
                f"{_NOTHING_EXCLUDED[test.no_bound]}a leak of {relevant:.3g} planted in these artifacts {share}, want "
                f"{POWER:.0%}; a stronger attack or more units would help"
            ),
        )
    return (
        "no_leak_found",
        None,
        (
            f"{_NOTHING_EXCLUDED[test.no_bound]}a leak of {relevant:.3g}, planted in these artifacts, is found in "
            f"{evidence.planted:.0%} of repeats"
            + ("" if test.upper is None else f"; leads above {test.upper:.3g} are excluded")
        ),
    )


_NOTHING_EXCLUDED: Mapping[NoBound | None, str] = {
    None: "",
    "equal_differences": "",
    "artifact_not_used": "the attack found nothing to use in the artifacts and answers as without them; ",
    "not_above_control": "the attack is no better than its strongest control; ",
}


def _leak(one: Mapping[str, Evidence], p: float, q: float, by_holm: float, selected: float) -> Answer:
    best = _strongest(one)
    test = one[best].test
    named = [name for name in one if one[name].p is not None]
    within = dict(zip(named, holm([_p(one[name]) for name in named]), strict=True))
    control = test.strongest_control.replace("_", " ")
    return Answer(
        "leak",
        f"beats every control, the strongest ({control}) by {test.difference:.3g}, over {test.units} units "
        f"(p = {p:.2g}, q = {q:.2g})",
        speaker=best,
        p=p,
        q=q,
        p_holm=by_holm,
        beyond_doubt=by_holm <= LEVEL,
        marked=frozenset(name for name, value in within.items() if value <= selected),
        error=selected,
    )


def _no_leak(one: Mapping[str, Evidence], p: float, q: float, by_holm: float) -> Answer:
    best = _strongest(one)
    more = f"more units than {one[best].test.units} would decide"
    if p <= LEVEL:
        reason = f"p = {p:.2g}, but q = {q:.2g} after the correction over all questions; {more}"
        return Answer("inconclusive", reason, "not_after_correction", best, p, q, by_holm)
    speaker = max(one, key=lambda name: (one[name].works, one[name].strength))
    verdict, because, reason = absence(one[speaker])
    if verdict == "no_leak_found" and q <= FALSE_DISCOVERIES:
        verdict, because = "inconclusive", "too_coarse"
        reason = f"p = {p:.2g} is above {LEVEL}, but q = {q:.2g} is within {FALSE_DISCOVERIES}; {more}"
    return Answer(verdict, reason, because, speaker, p, q, by_holm)


def _too_coarse(test: Test, relevant: float) -> str:
    """With how many units the relevant effect would be seen."""
    if test.resolution is None or test.upper is None or not relevant:
        return f"{test.units} units give no upper bound; want more units"
    wanted = max(test.units + 1, round(test.units * (test.resolution / relevant) ** 2))
    return (
        f"leads up to {test.upper:.3g} are not excluded: {test.units} units resolve {test.resolution:.3g}, {relevant:.3g} "
        f"matters; about {wanted} units would do"
    )


def _strongest(one: Mapping[str, Evidence]) -> str:
    """The attack with the least p; of equals the one with the largest lead in relevant effects."""
    return min(one, key=lambda name: (_p(one[name]), -one[name].test.difference / (one[name].relevant or 1.0)))


def _p(evidence: Evidence) -> float:
    return 1.0 if evidence.p is None else evidence.p


def _ps(one: Mapping[str, Evidence]) -> Sequence[float]:
    return [evidence.p for evidence in one.values() if evidence.p is not None]
