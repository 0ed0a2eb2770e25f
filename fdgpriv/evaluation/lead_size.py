"""Grades the lead of one attack: its share of what is achievable, and the grades of its ends."""

from dataclasses import dataclass

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.row_units import measured_scores
from fdgpriv.statistics.grades import EXPOSED_SHARE, GRADES, Grade, grade, highest, share_of_achievable
from fdgpriv.statistics.questions import Evidence
from fdgpriv.tasks.membership import tpr_name

_EXPOSED = tpr_name(0.01)


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

        def graded(lead: float) -> Grade:
            return highest((least, grade(lead, evidence.relevant, share_of_achievable(lead, control, perfect))))

        exposed = scores.realism.get("attack", {}).get(_EXPOSED)
        least: Grade = GRADES[0]
        if exposed is not None and exposed.ci95 is not None and exposed.ci95[0] > EXPOSED_SHARE:
            least = "moderate"
        if attack.exact and any(scores.recovered):
            least = "severe"
        low, high = test.interval(error) or (test.difference, test.difference)
        share = share_of_achievable(test.difference, control, perfect)
        return cls(share, graded(test.difference), (graded(low), graded(high)))
