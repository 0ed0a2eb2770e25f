"""What several tests build: one attack's entry of results.json, and a question."""

from typing import Any

from fdgpriv.results.attack_finding import AttackFinding, Leakage
from fdgpriv.results.question import Question
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Verdict

P: dict[Verdict, float | None] = {"leak": 0.0004, "no_leak_found": 0.3, "inconclusive": 0.2, "not_applicable": None}
"""A p that goes with each verdict."""


def figure(value: float, half: float = 0.07, direction: Any = "higher_leaks", n: int = 24) -> Measured:
    """A figure with an interval of `half` to either side."""
    return Measured(value=value, ci95=(value - half, value + half), n=n, direction=direction)


def outcome(verdict: Verdict, **given: Any) -> Leakage:
    """A test with this verdict, and a lead that goes with it."""
    why = None if verdict == "leak" else "too few units" if verdict == "inconclusive" else "tested"
    usual = {"value": None, "reason": "no decoder", "p": P[verdict], "verdict": verdict, "why": why}
    usual |= {"upper_bound": 0.05} if verdict == "no_leak_found" else {}
    return Leakage.model_validate({**usual, **given})


def finding(attack: str, headline: str, value: float, verdict: Verdict, **given: Any) -> AttackFinding:
    """An attack by the server on whole clients' styles, with the same verdict in both scopes.

    Its positive control succeeded.
    """
    usual: dict[str, Any] = {
        "attack": attack,
        "task": "members",
        "secret": "membership",
        "artifact": "style_statistics:client",
        "shared": True,
        "threat": {"role": "server", "auxiliary": "A3"},
        "n": 24,
        "headline": headline,
        "metrics": {headline: figure(value)},
        "controls": {"noise": {headline: figure(0.5)}},
        "positive_control": {"value": figure(0.85, 0.06), "p": 0.0004, "lead": 0.35, "succeeded": True},
        "leakage": {scope: outcome(verdict) for scope in ("client", "domain")},
    }
    return AttackFinding.model_validate({**usual, **given})


def question(verdict: Verdict, **given: Any) -> Question:
    """A question of what the server learns of a client's membership from its style, with this verdict."""
    usual: dict[str, Any] = {
        "artifact": "style_statistics",
        "level": "client",
        "adversary": "server",
        "secret": "membership",
        "scope": "client",
        "verdict": verdict,
        "strongest": {
            "attack": "style_membership",
            "metric": "auc",
            "value": figure(0.6),
            "control": "noise",
            "control_value": figure(0.5),
        },
        "grade": "moderate" if verdict == "leak" else None,
        "grade_interval": ("moderate", "moderate") if verdict == "leak" else None,
        "share_of_achievable": 0.2,
        "lead": figure(0.1),
        "planted": 0.9,
        "p": P[verdict],
        "q": P[verdict],
        "p_holm": P[verdict],
        "upper_bound": 0.05,
        "relevant": 0.1,
        "inconclusive_because": "too_coarse" if verdict == "inconclusive" else None,
        "reason": "tested",
        "attacks": (0,),
    }
    return Question.model_validate({**usual, **given})
