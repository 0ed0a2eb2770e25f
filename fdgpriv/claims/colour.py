"""Rules for claims that styles reveal at most an image's overall colour: attacks must do better than that colour allows."""

from dataclasses import replace
from typing import Any

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.claims.by_attack import WITHOUT_LEAKED_IMAGES, no_leak_by
from fdgpriv.claims.claim_test import Case, ClaimRule, Decision, interval
from fdgpriv.claims.findings import IMAGES, figure, image_verdict, rows_of
from fdgpriv.results.attack_finding import OVER_OWN_COLOUR, AttackFinding
from fdgpriv.statistics.interval import Interval
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.paired import LEVEL

_DRAWS = ("gan", "style_inversion")
_NOT_COMPARED = Measured(value=None, reason="not compared with one colour", direction="higher_leaks")
_NO_NEARER = "an attack beats every control, but not the best image of one colour"


def no_leak_beyond_colour(*attacks: str, **filters: Any) -> ClaimRule:
    """`no_leak_by` on single images; reconstructions count only if nearer than the best image of one colour."""
    rule = no_leak_by(*attacks, image=True, secret=IMAGES, **filters)

    def decide(case: Case) -> Decision:
        with_colour, beyond = rule(case), rule(replace(case, attacks=[_beyond_colour(row) for row in case.attacks]))
        leads = [
            row.metrics[OVER_OWN_COLOUR]
            for row in rows_of(case, _DRAWS, filters.get("on", ()), filters.get("by", ()), secret=IMAGES)
            if image_verdict(row) == "leak" and OVER_OWN_COLOUR in row.metrics
        ]
        evidence = (f"dB over the best image of one colour: {', '.join(map(figure, leads))}",) if leads else ()
        if with_colour.leak and not beyond.leak:
            return replace(with_colour, evidence=with_colour.evidence + evidence).undecided(_NO_NEARER)
        return replace(beyond, evidence=beyond.evidence + evidence)

    return decide


def _beyond_colour(row: AttackFinding) -> AttackFinding:
    """The row without success if its reconstructions are not nearer than the best image of one colour."""
    if row.attack not in _DRAWS:
        return row
    lead = row.metrics.get(OVER_OWN_COLOUR, _NOT_COMPARED)
    low, high = lead.ci95 or (None, None)
    p = Interval(lead.value, low, high, lead.n or 0).p_above()
    nearer = p <= LEVEL
    changed: dict[str, Any] = {}
    if (control := row.positive_control) is not None and control.p is not None:
        both = {"p": max(control.p, p), "succeeded": control.succeeded and nearer}
        changed["positive_control"] = control.model_copy(update=both)
    if row.level == "image" or not row.shared:
        failed: dict[str, Any] = {} if nearer else {"verdict": "inconclusive", "why": _NO_NEARER}
        changed["leakage"] = {
            scope: test.model_copy(update={"p": max(test.p, p), **failed})
            if test.verdict == "leak" and test.p is not None
            else test
            for scope, test in row.leakage.items()
        }
    return row.model_copy(update=changed)


def class_beyond_colour(case: Case) -> Decision:
    """Refuted if the class of the image behind a style is inferred better than from the image's overall colour.

    The class is but a part of an image's content, so that a style may tell other content where it does not tell the class.
    """
    decision = no_leak_by(
        "class_probe", image=True, on=(StyleStatistics.kind,), by=WITHOUT_LEAKED_IMAGES, matters=True, broad=True
    )(case)
    if decision.verdict != "refuted":
        return decision
    if "colour_accuracy_high" not in case.facts:
        return decision.undecided("inconclusive: the class by the overall colour alone is not measured")
    colour = f"the class by an image's mean colour alone: balanced accuracy {interval(case.facts, 'colour_accuracy')}"
    decision = replace(decision, evidence=(*decision.evidence, colour))
    highest = max(
        _lower_end(row) for row in rows_of(case, ["class_probe"], (StyleStatistics.kind,), WITHOUT_LEAKED_IMAGES)
    )
    if highest <= case.facts["colour_accuracy_high"]:
        return decision.undecided("inconclusive: the class is not told better than by the image's overall colour")
    reason = "the class is told, and better than by the image's overall colour"
    return replace(decision, reason=reason)


def _lower_end(row: AttackFinding) -> float:
    """The lower end of the probe's balanced accuracy if it leaks, else 0."""
    value = row.metrics.get(row.headline)
    return value.ci95[0] if image_verdict(row) == "leak" and value and value.ci95 else 0.0
