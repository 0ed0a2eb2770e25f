"""Turns the scores and tests of one attack into its entry of results.json."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fdgpriv.results.attack_finding import (
    OVER_OWN_COLOUR,
    AttackFinding,
    CurvePoint,
    Leakage,
    PositiveControl,
    RoundsPoint,
    Unaware,
    ViewRead,
)
from fdgpriv.statistics.interval import leakage, mean_interval
from fdgpriv.statistics.measured import Direction, Measured
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import Absent, Evidence, Verdict, absence
from fdgpriv.statistics.rule import Test
from fdgpriv.verdicts.attack_scores import BOUNDS, CLIENT_CONTROLS, ONE_ROUND, AttackScores
from fdgpriv.verdicts.attack_tests import AttackTests
from fdgpriv.verdicts.lead_size import LeadSize, measured_lead
from fdgpriv.verdicts.measured_scores import by_participation, counted_units, measured_mean, measured_scores
from fdgpriv.verdicts.trial_scores import TrialScores

_NO_IMAGES = "this attack draws no images, so it has no decoder to measure against"
_EXPENSIVE = (
    "simulating an artifact is expensive here, so that no decoder was shown each image's own to measure against"
)


def finding(attack: AttackScores, tests: AttackTests, marked: Collection[str] = ()) -> AttackFinding:
    """The entry of one attack; `marked` are the scopes in which it leaks by itself."""
    scores = attack.by_size.get(attack.size, TrialScores())
    single_images = attack.by_size.get(1)
    figures = _figures_by_role(attack, scores, single_images)
    metrics = figures.pop("attack", {})
    bounds = {role: figures.pop(role) for role in BOUNDS if role in figures}
    # what verdicts on single images rest on
    positive = (attack.undefended or single_images) if attack.size is None else single_images
    if positive is not None and "own_colour" in positive.headline:
        metrics[OVER_OWN_COLOUR] = _over_own_colour(attack, positive)
    for name, ablated in attack.ablations.items():
        metrics[f"{attack.metric}@{name}"] = measured_scores(attack, "attack", ablated)
    if positive is not None and attack.size is None:
        bounds["single_image" if attack.single_images else "undefended"] = {
            attack.metric: measured_scores(attack, "attack", positive)
        }
    return AttackFinding(
        attack=attack.attack,
        task=attack.task,
        secret=attack.secret,
        artifact=f"{attack.kind}:{attack.level}",
        shared=attack.shared,
        threat=attack.threat,
        n=len(scores.units),
        headline=attack.metric,
        chance=None if attack.chance is None else Measured(value=attack.chance, direction=attack.direction),
        metrics=metrics,
        controls=figures,
        upper_bounds=bounds,
        positive_control=_positive_control(attack, tests.positive),
        curve=tuple(_curve_point(attack, *point) for point in attack.by_size.items())
        if len(attack.by_size) > 1
        else (),
        rounds=tuple(_rounds_point(attack, tests, *point) for point in attack.by_rounds),
        view=ViewRead(rounds=attack.rounds_read, clients=attack.clients_read),
        unaware=_unaware(attack, scores),
        units=counted_units(attack, scores),
        apart=by_participation(attack, scores),
        trust=_artifact_weights(attack),
        leakage={
            scope: _leakage(attack, scores, scope, evidence, scope in marked)
            for scope, evidence in tests.scopes.items()
            if scope in attack.scopes and not attack.not_applicable
        },
        reason=attack.not_applicable,
        failed=attack.failed,
        figures=attack.figures,
    )


def _figures_by_role(
    attack: AttackScores, scores: TrialScores, single_images: TrialScores | None
) -> dict[str, dict[str, Measured]]:
    """By role, every metric of the artifacts on the wire, and the aggregates of single images under names of their own."""
    figures = {role: {attack.metric: measured_scores(attack, role, scores)} for role in scores.headline}
    for metric, by_role in scores.details.items():
        direction: Direction = "lower_leaks" if metric.startswith("lpips") else "higher_leaks"
        for role, values in by_role.items():
            figures[role][metric] = measured_mean(values, scores, direction, None)
    for role, by_metric in (single_images.aggregates if single_images else {}).items():
        figures.setdefault(role, {}).update({f"single_image {metric}": value for metric, value in by_metric.items()})
    for role, by_metric in (scores.aggregates if attack.size is None else {}).items():
        figures.setdefault(role, {}).update(by_metric)
    return figures


def _over_own_colour(attack: AttackScores, scores: TrialScores) -> Measured:
    """The mean lead of reconstructions over the best image of one colour, which only the evaluator can compute."""
    lead = attack.sign * (np.asarray(scores.headline["attack"]) - np.asarray(scores.headline["own_colour"]))
    return measured_mean(lead.tolist(), scores, "higher_leaks", None)


def _artifact_weights(attack: AttackScores) -> dict[str, float]:
    """By number of images of the artifact, the weight that the adversary gave to the artifact."""
    return {
        "whole client" if size is None else f"{size} image{'' if size == 1 else 's'}": scores.artifact_weight
        for size, scores in attack.by_size.items()
        if scores.artifact_weight is not None
    }


def _positive_control(attack: AttackScores, test: Test | None) -> PositiveControl | None:
    """The scores and the test of the positive control; None if it was not evaluated or not tested."""
    scores = attack.positive()
    if scores is None or test is None:
        return None
    evidence = Evidence(test, attack.relevant_effect(scores), positive=test)
    return PositiveControl(
        value=measured_scores(attack, "attack", scores),
        controls={role: measured_scores(attack, role, scores) for role in attack.controls(attack.main_scope, scores)},
        lead=test.difference,
        p=test.p,
        succeeded=None if test.p is None else evidence.works,
    )


def _curve_point(attack: AttackScores, size: int | None, scores: TrialScores) -> CurvePoint:
    """The scores of the attack and of its controls on artifacts of `size` images; None is the whole client."""
    controls = [role for role in scores.headline if role in CLIENT_CONTROLS]
    return CurvePoint(
        images=size,
        units=len(set(scores.units)),
        value=measured_scores(attack, "attack", scores),
        controls={role: measured_scores(attack, role, scores) for role in controls},
    )


def _rounds_point(
    attack: AttackScores, tests: AttackTests, rounds: int, size: int | None, scores: TrialScores
) -> RoundsPoint:
    """The scores on so many rounds; the tests are of the largest number alone, those of the verdict of whole clients."""
    point, is_last = _curve_point(attack, size, scores), rounds == attack.max_rounds
    evidence = tests.over_rounds if is_last and size is None else None
    verdict, reason = (None, None) if evidence is None else _uncorrected_verdict(evidence)
    return RoundsPoint(
        rounds=rounds,
        images=size,
        units=point.units,
        value=point.value,
        controls=point.controls,
        rise=_rise(attack, size, scores) if rounds > 1 else None,
        p_rise=tests.rises[size].p if is_last else None,
        p=evidence.p if isinstance(evidence, Evidence) else None,
        verdict=verdict,
        reason=reason,
    )


def _unaware(attack: AttackScores, scores: TrialScores) -> Unaware | None:
    """The scores of an adversary that does not know the defense, and how much knowledge gains; None without a defense."""
    unaware = attack.unaware
    if unaware is None:
        return None
    controls = {role for scope in attack.scopes for role in attack.controls(scope, unaware)}
    return Unaware(
        value=measured_scores(attack, "attack", unaware),
        controls={role: measured_scores(attack, role, unaware) for role in unaware.headline if role in controls},
        difference=_gain(attack, scores, unaware, scores.units),
    )


def _rise(attack: AttackScores, size: int | None, scores: TrialScores) -> Measured:
    """The mean gain over the scores on one round, with an interval over clients."""
    shared = scores.shared_variance.get(ONE_ROUND, 0.0)
    return _gain(attack, scores, attack.one_round(size), scores.clients, shared)


def _gain(
    attack: AttackScores,
    scores: TrialScores,
    base: TrialScores,
    cluster: Sequence[str],
    shared_variance: float = 0.0,
) -> Measured:
    """The mean of `scores` minus `base` on the same trials, with an interval over clusters.

    `shared_variance` is the variance of this mean from what clusters share.
    """
    gains = np.asarray(scores.headline["attack"]) - np.asarray(base.headline["attack"])
    mean = mean_interval(gains, np.asarray(cluster), shared_variance=shared_variance)
    return Measured(value=mean.value, ci95=mean.ends, n=mean.n, direction=attack.direction)


def _uncorrected_verdict(evidence: Evidence | Absent) -> tuple[Verdict, str | None]:
    """The verdict of a single test without correction, with a reason unless it is a leak."""
    if isinstance(evidence, Absent):
        return evidence.verdict, evidence.reason
    if evidence.p is None:
        return "inconclusive", evidence.test.reason or "the test has no p"
    if evidence.p <= LEVEL:
        return "leak", None
    verdict, _, reason = absence(evidence)
    return verdict, reason


def _verdict_by_recovery(attack: AttackScores, scores: TrialScores) -> tuple[Verdict, str]:
    """The verdict of an attack that recovers artifacts exactly or does not."""
    on_wire, on_single_images = (
        float(np.mean(recovered)) if recovered else 0.0
        for recovered in (scores.recovered, (attack.positive() or TrialScores()).recovered)
    )
    if on_wire:
        return "leak", f"{on_wire:.0%} of artifacts were recovered exactly"
    if on_single_images:
        return (
            "no_leak_found",
            f"no artifact was recovered exactly; of those of single images {on_single_images:.0%} were",
        )
    return "inconclusive", "nothing was recovered exactly, not even artifacts of single images"


def _leakage(
    attack: AttackScores, scores: TrialScores, scope: str, evidence: Evidence | Absent, marked: bool
) -> Leakage:
    """The test of one attack in this scope; `marked` if the attack leaks by itself in a leaking question."""
    by_recovery = attack.exact and isinstance(evidence, Evidence)
    verdict, why = _verdict_by_recovery(attack, scores) if by_recovery else _uncorrected_verdict(evidence)
    if isinstance(evidence, Absent):
        return Leakage(value=None, reason=evidence.reason, verdict=verdict, why=why)
    test, size = evidence.test, LeadSize.of(attack, evidence)
    tested: dict[str, Any] = {
        "p": test.p,
        "control": test.strongest_control,
        "lead": measured_lead(test, 0.05),
        "resolution": test.resolution,
        "upper_bound": test.upper,
        "relevant": evidence.relevant,
        "against": tuple(attack.controls(scope, scores)),
        "planted": evidence.planted,
        "marked": marked,
        "share_of_achievable": size.share,
        "grade": size.grade if marked else None,
        "verdict": verdict,
        "why": why,
    }
    decoder = scores.headline.get("autoencoder")
    if decoder is None:
        return Leakage(value=None, reason=_EXPENSIVE if "nearest_own" in scores.headline else _NO_IMAGES, **tested)
    scored, control, ceiling = (
        attack.sign * np.asarray(values)
        for values in (scores.headline["attack"], scores.headline[test.strongest_control], decoder)
    )
    share = leakage(scored, control, ceiling, np.asarray(scores.units))
    return Leakage(value=share.value, ci95=share.ends, reason=share.reason, **tested)
