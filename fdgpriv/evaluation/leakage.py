"""Turns the evidence of one attack in one scope into its entry of results.json."""

from typing import Any

import numpy as np

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.lead_size import LeadSize
from fdgpriv.evaluation.scores import Scores
from fdgpriv.results.attack_finding import Leakage
from fdgpriv.statistics.interval import leakage
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import Absent, Evidence, Verdict, absence
from fdgpriv.statistics.rule import Test

_NO_IMAGES = "this attack draws no images, so it has no decoder to measure against"
_EXPENSIVE = (
    "simulating an artifact is expensive here, so that no decoder was shown each image's own to measure against"
)


def alone(evidence: Evidence | Absent) -> tuple[Verdict, str | None]:
    """The verdict of one test by itself, without any correction, and the reason where it is not a leak."""
    if isinstance(evidence, Absent):
        return evidence.verdict, evidence.reason
    if evidence.p is None:
        return "inconclusive", evidence.test.reason or "the test has no p"
    if evidence.p <= LEVEL:
        return "leak", None
    verdict, _, reason = absence(evidence)
    return verdict, reason


def _by_recovery(attack: AttackScores, scores: Scores) -> tuple[Verdict, str]:
    """The verdict of an attack that recovers artifacts exactly or does not."""
    wire, single = (
        float(np.mean(one.recovered)) if one.recovered else 0.0 for one in (scores, attack.positive() or Scores())
    )
    if wire:
        return "leak", f"{wire:.0%} of artifacts were recovered exactly"
    if single:
        return "no_leak_found", f"no artifact was recovered exactly; of those of single images {single:.0%} were"
    return "inconclusive", "nothing was recovered exactly, not even artifacts of single images"


def measured_lead(test: Test, error: float) -> Measured:
    """The lead over the strongest control with its two-sided interval at level 1 - `error`."""
    return Measured(value=test.difference, ci95=test.interval(error), n=test.units, direction="higher_leaks")


def leakage_entry(
    attack: AttackScores, scores: Scores, scope: str, evidence: Evidence | Absent, marked: bool
) -> Leakage:
    """The test of one attack in this scope; `marked` where it leaks on its own."""
    exact = attack.exact and isinstance(evidence, Evidence)
    verdict, why = _by_recovery(attack, scores) if exact else alone(evidence)
    if isinstance(evidence, Absent):
        return Leakage(value=None, reason=evidence.reason, verdict=verdict, why=why)
    test = evidence.test
    shared: dict[str, Any] = {
        "p": test.p,
        "control": test.strongest_control,
        "lead": measured_lead(test, 0.05),
        "resolution": test.resolution,
        "upper_bound": test.upper,
        "relevant": evidence.relevant,
        "against": tuple(attack.controls(scope, scores)),
        "planted": evidence.planted,
        "marked": marked,
        "share_of_achievable": (size := LeadSize.of(attack, evidence)).share,
        "grade": size.grade if marked else None,
        "verdict": verdict,
        "why": why,
    }
    ceiling = scores.headline.get("autoencoder")
    if ceiling is None:
        return Leakage(value=None, reason=_EXPENSIVE if "nearest_own" in scores.headline else _NO_IMAGES, **shared)
    own, control, top = (
        attack.sign * np.asarray(values)
        for values in (scores.headline["attack"], scores.headline[test.strongest_control], ceiling)
    )
    found = leakage(own, control, top, np.asarray(scores.units))
    return Leakage(value=found.value, ci95=found.ends, reason=found.reason, **shared)
