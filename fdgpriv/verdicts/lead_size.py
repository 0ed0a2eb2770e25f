"""The lead of one attack over its strongest control: with its interval, as a share of what is achievable, and graded."""

from dataclasses import dataclass

from fdgpriv.results.attack_finding import EXPOSED
from fdgpriv.statistics.grades import EXPOSED_SHARE, GRADES, Grade, grade, highest, share_of_achievable
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Evidence
from fdgpriv.statistics.rule import Test
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.measured_scores import measured_scores
from fdgpriv.verdicts.trial_scores import TrialScores


def measured_lead(test: Test, error: float) -> Measured:
    """The lead over the strongest control with its two-sided interval at level 1 - `error`."""
    return Measured(value=test.difference, ci95=test.interval(error), n=test.units, direction="higher_leaks")


@dataclass(frozen=True)
class LeadSize:
    """How large a lead is, if it is a leak.

    Attributes:
        share: Of the way from the strongest control to a perfect attack; None where there is no perfect score.
        grade: Of the point estimate.
        interval: The grades of the lower and of the upper end of the lead's interval.
    """

    share: float | None
    grade: Grade
    interval: tuple[Grade, Grade]

    @classmethod
    def of(cls, attack: AttackScores, evidence: Evidence, error: float = 0.05) -> "LeadSize":
        """The size of this attack's lead on the artifacts on the wire, with the interval at level 1 - `error`.

        A membership attack that names more than a tenth of the members at a false positive rate of 1 % is at least
        ``moderate``, and the exact recovery of an artifact is ``severe``.
        """
        test, scores = evidence.test, attack.by_size[attack.size]
        control = measured_scores(attack, test.strongest_control, scores).value or 0.0
        perfect = attack.perfect_score(scores)
        minimum = _minimum_grade(attack, scores)

        def graded(lead: float) -> Grade:
            return highest((minimum, grade(lead, evidence.relevant, share_of_achievable(lead, control, perfect))))

        low, high = test.interval(error) or (test.difference, test.difference)
        share = share_of_achievable(test.difference, control, perfect)
        return cls(share, graded(test.difference), (graded(low), graded(high)))


def _minimum_grade(attack: AttackScores, scores: TrialScores) -> Grade:
    """The grade that the attack has whatever its lead: for members that it exposes, or artifacts that it recovers."""
    if attack.exact and any(scores.recovered):
        return "severe"
    exposed = scores.aggregates.get("attack", {}).get(EXPOSED)
    if exposed is not None and exposed.ci95 is not None and exposed.ci95[0] > EXPOSED_SHARE:
        return "moderate"
    return GRADES[0]
