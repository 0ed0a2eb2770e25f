"""The verdict on each question of a report, from the tests of all attacks on it.

A question's p is Simes' over its attacks; q corrects over all questions by Benjamini and Hochberg. A leak has q <= 0.05
and p <= 0.025. "No leak found" needs an attack that would have found a leak; all other questions are inconclusive.

The shown attack of a question has the largest lead, in multiples of the least that matters, among the attacks that are
significant after Holm's correction over the question's attacks; where there is none, among those with p <= 0.025 before it,
else among all. Its interval is widened over the attacks among which its lead is the largest.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from fdgpriv.statistics.multiplicity import benjamini_hochberg, holm, simes
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.resolution import POWER
from fdgpriv.statistics.rule import NoBound, Test

Verdict: TypeAlias = Literal["leak", "sent_in_clear", "no_leak_found", "inconclusive", "not_applicable"]
Because: TypeAlias = Literal["weak_attack", "too_coarse", "not_after_correction", "failed"]

FALSE_DISCOVERIES = 0.05
ERROR = 0.05  # of the two-sided interval of one lead

_ROUNDING = 1e-9  # 0.7 - 0.5 is 0.19999999999999996


@dataclass(frozen=True)
class Evidence:
    """One attack's test on one question, and the evidence that it would have found a leak.

    Attributes:
        test: The test against every control of the question's scope.
        relevant: The smallest lead that matters, in the metric's unit.
        positive: The test of the same attack with the same budget on artifacts that are known to leak; None if there are none.
        planted: Share of repeats in which it finds a leak of relevant size planted in these artifacts; None if not measured.
        budget: Its settings in words.
        misfit: Why the simulated clients on which it chose the weight of artifacts cannot stand for the attacked ones; None if
            they can, or there is no such weight.
        relevant_on_positive: The smallest lead that matters on the positive control, if it differs from `relevant`: a relative
            effect is a share of the public prior's score there.
    """

    test: Test
    relevant: float
    positive: Test | None = None
    planted: float | None = None
    budget: str = ""
    misfit: str | None = None
    relevant_on_positive: float | None = None

    @property
    def p(self) -> float | None:
        """The p of the test, before any correction."""
        return self.test.p

    @property
    def required_lead(self) -> float:
        """The smallest lead on the positive control that counts as success."""
        return self.relevant if self.relevant_on_positive is None else self.relevant_on_positive

    @property
    def works(self) -> bool:
        """Whether it succeeds on its positive control, with a lead that matters."""
        test = self.positive
        if test is None or test.p is None:
            return False
        return test.p <= LEVEL and test.difference >= self.required_lead - _ROUNDING

    @property
    def shows_nothing(self) -> bool:
        """Whether it cannot show that there is no leak, whatever it finds elsewhere."""
        return self.test.deficit is not None or self.misfit is not None

    @property
    def decided_by_planted_leak(self) -> bool:
        """Whether "no leak found" depends on the power for a planted leak: no lead, or every relevant lead, is excluded."""
        return self.test.rests_on_planted_leak or self.excludes_relevant

    @property
    def excludes_relevant(self) -> bool:
        """Whether leads that matter are excluded."""
        return self.test.no_bound == "not_above_control" or (
            self.test.upper is not None and self.test.upper < self.relevant
        )

    @property
    def leads_enough(self) -> bool:
        """Whether its lead is at least the smallest that matters."""
        return self.test.difference >= self.relevant - _ROUNDING

    @property
    def relative_lead(self) -> float:
        """The lead in multiples of the relevant effect."""
        return self.test.difference / (self.relevant or 1.0)

    @property
    def strength(self) -> float:
        """The lead on the positive control in multiples of the relevant effect; 0 without a positive control."""
        return 0.0 if self.positive is None or not self.required_lead else self.positive.difference / self.required_lead


@dataclass(frozen=True)
class Absent:
    """A question that cannot be tested: the reason in one sentence, its verdict, and the cause if that is inconclusive."""

    reason: str
    verdict: Literal["sent_in_clear", "inconclusive", "not_applicable"] = "inconclusive"
    because: Because = "too_coarse"


@dataclass(frozen=True)
class Answer:
    """The verdict on one question.

    Attributes:
        verdict: The answer.
        reason: One sentence; for an inconclusive verdict, with the way to decide it.
        because: The cause of an inconclusive verdict.
        shown_attack: The attack that is shown: the strongest one, or for "no leak found" the one with the largest lead on
            its positive control.
        reason_of: The attack that the reason is about.
        p: Simes' p of the question; q and p_holm correct it over all questions.
        beyond_doubt: Whether a leak also passes Holm's correction at 0.025.
        significant: The attacks on a leaking question with p <= 0.025 after Holm's correction over its attacks, which
            determine its grade.
        leaking: Those of them that are also significant at the level of the report's leaks.
        error: The error level of the lead's interval; below 0.05 for leads that were selected as leaks, and for the largest
            lead of several attacks.
    """

    verdict: Verdict
    reason: str
    because: Because | None = None
    shown_attack: str | None = None
    reason_of: str | None = None
    p: float | None = None
    q: float | None = None
    p_holm: float | None = None
    beyond_doubt: bool = False
    significant: frozenset[str] = frozenset()
    leaking: frozenset[str] = frozenset()
    error: float = ERROR


EvidenceByAttack: TypeAlias = Mapping[str, Evidence] | Absent
K = TypeVar("K", bound=Hashable)


def answers(questions: Mapping[K, EvidenceByAttack]) -> dict[K, Answer]:
    """The verdict on each question of a report; all questions are one family for the corrections.

    Args:
        questions: By key, the evidence by attack, or the reason why there is none.
    """
    tested = [key for key, evidence in questions.items() if not isinstance(evidence, Absent) and _ps(evidence)]
    ps = [simes(_ps(evidence)) for key in tested if not isinstance(evidence := questions[key], Absent)]
    p = dict(zip(tested, ps, strict=True))
    q = dict(zip(tested, benjamini_hochberg(ps), strict=True))
    p_holm = dict(zip(tested, holm(ps), strict=True))
    leaks = {key for key in tested if q[key] <= FALSE_DISCOVERIES and p[key] <= LEVEL}
    level_within = FALSE_DISCOVERIES * len(leaks) / max(1, len(tested))
    answers = {}
    for key, evidence in questions.items():
        if isinstance(evidence, Absent):
            because: Because | None = evidence.because if evidence.verdict == "inconclusive" else None
            answers[key] = Answer(evidence.verdict, evidence.reason, because)
        elif key not in p:
            test = next(iter(evidence.values())).test
            answers[key] = Answer("inconclusive", test.reason or "the test has no p", "too_coarse")
        elif key in leaks:
            answers[key] = _leak(evidence, p[key], q[key], p_holm[key], level_within)
        else:
            answers[key] = _no_leak(evidence, p[key], q[key], p_holm[key])
    return answers


def absence(evidence: Evidence) -> tuple[Verdict, Because | None, str]:
    """The verdict of a test that finds no leak, its cause if it is inconclusive, and the reason in words."""
    verdict, because, reason = _absence(evidence)
    if evidence.misfit is None:
        return verdict, because, reason
    misfit = f"how far the attack trusts artifacts was chosen on simulated clients, but {evidence.misfit}"
    return "inconclusive", "weak_attack", f"{reason}; {misfit}" if because == "weak_attack" else misfit


def _absence(evidence: Evidence) -> tuple[Verdict, Because | None, str]:
    """As `absence`, if simulated clients can stand for the attacked ones."""
    test, relevant = evidence.test, evidence.relevant
    with_budget = f" with {evidence.budget}" if evidence.budget else ""
    if evidence.positive is None:
        return "inconclusive", "weak_attack", "no positive control says that the attack could succeed"
    if (deficit := test.deficit) is not None:
        reason = (
            f"the attack is worse than the control {deficit.control.replace('_', ' ')}, which uses no artifact, by "
            f"{deficit.difference:.3g} (p = {deficit.p:.2g}): it shows nothing about the artifacts; a larger budget or more "
            "auxiliary images would help"
        )
        return "inconclusive", "weak_attack", reason
    if not evidence.works:
        lead, p = evidence.positive.difference, evidence.positive.p
        p_text = "no p" if p is None else f"p = {p:.2g}"
        if evidence.strength >= 1 and p is not None and p > LEVEL:
            units = evidence.positive.units
            reason = (
                f"on its positive control{with_budget} the attack leads by {amount(lead)}, which is enough, but over {units} "
                f"units that is {p_text}, want p <= {LEVEL}; more clients would decide"
            )
            return "inconclusive", "too_coarse", reason
        return (
            "inconclusive",
            "weak_attack",
            (
                f"the attack does not succeed on its positive control{with_budget}: its lead there is {amount(lead)} "
                f"({p_text}), want {evidence.required_lead:.3g} at p <= {LEVEL}; a larger budget or more auxiliary images "
                "would help"
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
                f"{_NOTHING_EXCLUDED[test.no_bound]}a leak that just matters, planted in these artifacts, {share}, want "
                f"{POWER:.0%}; a stronger attack or more units would help"
            ),
        )
    return (
        "no_leak_found",
        None,
        (
            f"{_NOTHING_EXCLUDED[test.no_bound]}a leak that just matters, planted in these artifacts, is found in "
            f"{evidence.planted:.0%} of repeats"
            + ("" if test.upper is None else f"; leads above {test.upper:.3g} are excluded")
        ),
    )


def amount(value: float) -> str:
    """A lead in three digits; a difference that is 0 but for rounding as 0."""
    return "0" if abs(value) <= _ROUNDING else f"{value:.3g}"


_NOTHING_EXCLUDED: Mapping[NoBound | None, str] = {
    None: "",
    "equal_differences": "",
    "artifact_not_used": "the attack found nothing to use in the artifacts and answers as without them; ",
    "not_above_control": "the attack is no better than its strongest control; ",
}


def _leak(evidence: Mapping[str, Evidence], p: float, q: float, p_holm: float, level_within: float) -> Answer:
    """The verdict ``leak``; attacks of the question leak by themselves at `level_within` after Holm's correction."""
    corrected = _corrected(evidence)
    significant = frozenset(name for name, value in corrected.items() if value <= LEVEL)
    best = _strongest(evidence, significant)
    test = evidence[best].test
    control = test.strongest_control.replace("_", " ")
    of_attack = "" if evidence[best].p == p else f"p = {_p(evidence[best]):.2g} by this attack, "
    return Answer(
        "leak",
        f"beats every control, the strongest ({control}) by {test.difference:.3g}, over {test.units} units "
        f"({of_attack}p = {p:.2g}, q = {q:.2g})",
        shown_attack=best,
        reason_of=best,
        p=p,
        q=q,
        p_holm=p_holm,
        beyond_doubt=p_holm <= LEVEL,
        significant=significant,
        leaking=frozenset(name for name in significant if corrected[name] <= level_within),
        error=level_within / len(corrected),
    )


def _no_leak(evidence: Mapping[str, Evidence], p: float, q: float, p_holm: float) -> Answer:
    """The verdict on a question that is no leak: ``no_leak_found`` or ``inconclusive``.

    The attack with the largest lead on its positive control says whether a leak would have been found. "No leak found" also
    needs that no attack contradicts it: that each has p > 0.025 before correction and a lead below the smallest that matters,
    or excludes such a lead.
    """
    corrected = _corrected(evidence)
    best = _strongest(evidence, [name for name, value in corrected.items() if value <= LEVEL])

    def inconclusive(reason: str, because: Because | None, reason_of: str) -> Answer:
        error = ERROR / len(corrected)
        return Answer("inconclusive", reason, because, best, reason_of, p, q, p_holm, error=error)

    more = f"more units than {evidence[best].test.units} would decide"
    if p <= LEVEL:
        reason = f"p = {p:.2g}, but q = {q:.2g} after the correction over all questions; {more}"
        return inconclusive(reason, "not_after_correction", best)
    not_excluding = {name: evidence[name] for name in corrected if not evidence[name].excludes_relevant}
    if any(_p(attack) <= LEVEL for attack in not_excluding.values()):
        telling = _strongest(not_excluding)
        reason = (
            f"p = {_p(evidence[telling]):.2g}, but {p:.2g} after the correction over the question's {len(corrected)} attacks; "
            f"{more}"
        )
        return inconclusive(reason, "not_after_correction", telling)
    decisive = max(evidence, key=lambda name: (evidence[name].works, evidence[name].strength))
    verdict, because, reason = absence(evidence[decisive])
    if verdict == "inconclusive":
        return inconclusive(reason, because, decisive)
    if q <= FALSE_DISCOVERIES:
        reason = f"p = {p:.3g} is above {LEVEL}, but q = {q:.2g} is within {FALSE_DISCOVERIES}; {more}"
        return inconclusive(reason, "too_coarse", best)
    if any(attack.leads_enough for attack in not_excluding.values()):
        largest = _strongest(not_excluding)
        return inconclusive(_too_coarse(evidence[largest].test, evidence[largest].relevant), "too_coarse", largest)
    return Answer(verdict, reason, because, decisive, decisive, p, q, p_holm)


def _too_coarse(test: Test, relevant: float) -> str:
    """The reason of an inconclusive test, with the number of units that would resolve the relevant effect."""
    if test.resolution is None or test.upper is None or not relevant:
        return f"{test.units} units give no upper bound; want more units"
    wanted = max(test.units + 1, round(test.units * (test.resolution / relevant) ** 2))
    return (
        f"leads up to {test.upper:.3g} are not excluded: {test.units} units resolve {test.resolution:.3g}, {relevant:.3g} "
        f"matters; about {wanted} units would do"
    )


def _strongest(evidence: Mapping[str, Evidence], significant: Collection[str] = ()) -> str:
    """The attack with the largest lead in relevant effects among the significant ones; of equal leads the smallest p.

    Where none is significant, it is that of the attacks with p <= 0.025 before correction, else of all that have a p.
    """
    tested = [name for name in evidence if evidence[name].p is not None]
    candidates = significant or [name for name in tested if _p(evidence[name]) <= LEVEL] or tested
    in_order = [name for name in evidence if name in candidates]
    return max(in_order, key=lambda name: (evidence[name].relative_lead, -_p(evidence[name])))


def _corrected(evidence: Mapping[str, Evidence]) -> dict[str, float]:
    """By attack with a p, its p after Holm's correction over the attacks of the question."""
    tested = [name for name, attack in evidence.items() if attack.p is not None]
    return dict(zip(tested, holm([_p(evidence[name]) for name in tested]), strict=True))


def _p(evidence: Evidence) -> float:
    return 1.0 if evidence.p is None else evidence.p


def _ps(evidence: Mapping[str, Evidence]) -> Sequence[float]:
    return [attack.p for attack in evidence.values() if attack.p is not None]
