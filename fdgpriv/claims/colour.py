"""Rules for claims that styles tell an image's overall colour at most: a reconstruction must be nearer than that colour."""

from dataclasses import replace
from typing import Any

from fdgpriv.claims.hypothesis import Case, Decision, Rule, figure, image_verdict, no_leak_by, rows_of
from fdgpriv.results.attack_finding import OVER_OWN_COLOUR, AttackFinding
from fdgpriv.statistics.interval import Interval
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.paired import LEVEL

_DRAWS = "gan"
_NOT_COMPARED = Measured(value=None, reason="not compared with one colour", direction="higher_leaks")
_NO_NEARER = "an attack beats every control, but not the best image of one colour"


def no_leak_beyond_colour(*attacks: str, **given: Any) -> Rule:
    """As `no_leak_by` on single images, where a reconstruction counts that is also nearer than the best image of one colour."""
    rule = no_leak_by(*attacks, image=True, **given)

    def decide(case: Case) -> Decision:
        plain, found = rule(case), rule(replace(case, attacks=[_beyond_colour(row) for row in case.attacks]))
        leads = [
            row.metrics[OVER_OWN_COLOUR]
            for row in rows_of(case, [_DRAWS], given.get("on", ()))
            if image_verdict(row) == "leak" and OVER_OWN_COLOUR in row.metrics
        ]
        told = (f"dB over the best image of one colour: {', '.join(map(figure, leads))}",) if leads else ()
        if plain.leak and not found.leak:
            return replace(plain, evidence=plain.evidence + told).undecided(_NO_NEARER)
        return replace(found, evidence=found.evidence + told)

    return decide


def _beyond_colour(row: AttackFinding) -> AttackFinding:
    """The same row; a reconstruction that is not nearer than its colour is no success any more."""
    if row.attack != _DRAWS:
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
            scope: one.model_copy(update={"p": max(one.p, p), **failed})
            if one.verdict == "leak" and one.p is not None
            else one
            for scope, one in row.leakage.items()
        }
    return row.model_copy(update=changed)
