"""Turns the scores and tests of one attack into its entry of results.json."""

from collections.abc import Collection, Sequence

import numpy as np

from fdgpriv.evaluation.attack_scores import BOUNDS, CLIENT_CONTROLS, AttackScores
from fdgpriv.evaluation.attack_tests import AttackTests
from fdgpriv.evaluation.leakage import alone, leakage_entry
from fdgpriv.evaluation.row_units import apart, counted, interval, measured_scores
from fdgpriv.evaluation.scores import ONE_ROUND, Scores
from fdgpriv.results.attack_finding import (
    OVER_OWN_COLOUR,
    AttackFinding,
    CurvePoint,
    PositiveControl,
    RoundsPoint,
    Unaware,
    ViewRead,
)
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Evidence
from fdgpriv.statistics.rule import Test


def finding(attack: AttackScores, tests: AttackTests, marked: Collection[str] = ()) -> AttackFinding:
    """The entry of one attack; `marked` are the scopes in which it leaks on its own."""
    scores = attack.by_size.get(attack.size, Scores())
    tables: dict[str, dict[str, Measured]] = {
        name: {attack.metric: measured_scores(attack, name, scores)} for name in scores.headline
    }
    for metric, by_name in scores.details.items():
        for name, values in by_name.items():
            tables[name][metric] = _detail(metric, values, scores)
    single = attack.by_size.get(1)
    for name, figures in (single.realism if single else {}).items():
        tables.setdefault(name, {}).update({f"single_image {metric}": figure for metric, figure in figures.items()})
    for name, figures in (scores.realism if attack.size is None else {}).items():
        tables.setdefault(name, {}).update(figures)
    metrics = tables.pop("attack", {})
    bounds = {name: tables.pop(name) for name in BOUNDS if name in tables}
    proof = (attack.undefended or single) if attack.size is None else single  # what verdicts on single images rest on
    if proof is not None and "own_colour" in proof.headline:
        metrics[OVER_OWN_COLOUR] = _over_own_colour(attack, proof)
    for name, ablated in attack.ablations.items():
        metrics[f"{attack.metric}@{name}"] = measured_scores(attack, "attack", ablated)
    if proof is not None and attack.size is None:
        bounds["single_image" if attack.single_images else "undefended"] = {
            attack.metric: measured_scores(attack, "attack", proof)
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
        controls=tables,
        upper_bounds=bounds,
        positive_control=_positive(attack, tests.positive),
        curve=tuple(_point(attack, size, at) for size, at in attack.by_size.items()) if len(attack.by_size) > 1 else (),
        rounds=tuple(_over_rounds(attack, tests, *point) for point in attack.by_rounds),
        view=ViewRead(rounds=attack.rounds_read, clients=attack.clients_read),
        unaware=_unaware(attack, scores),
        units=counted(attack, scores),
        apart=apart(attack, scores),
        trust=_trust(attack),
        leakage={
            scope: leakage_entry(attack, scores, scope, one, scope in marked)
            for scope, one in tests.scopes.items()
            if scope in attack.scopes and not attack.not_applicable
        },
        reason=attack.not_applicable,
        failed=attack.failed,
        figures=attack.figures,
    )


def _detail(metric: str, values: Sequence[float], scores: Scores) -> Measured:
    return interval(values, scores, "lower_leaks" if metric.startswith("lpips") else "higher_leaks", None)


def _over_own_colour(attack: AttackScores, scores: Scores) -> Measured:
    """How much nearer reconstructions are than the best image of one colour, which takes the truth to know."""
    lead = attack.sign * (np.asarray(scores.headline["attack"]) - np.asarray(scores.headline["own_colour"]))
    return interval(lead.tolist(), scores, "higher_leaks", None)


def _trust(attack: AttackScores) -> dict[str, float]:
    """By number of images of the artifact, the weight that the adversary gave to the artifact."""
    by_size = {size: at.trust for size, at in attack.by_size.items() if at.trust is not None}
    return {"whole client" if size is None else f"{size} images": weight for size, weight in by_size.items()}


def _positive(attack: AttackScores, test: Test | None) -> PositiveControl | None:
    scores = attack.positive()
    if scores is None or test is None:
        return None
    evidence = Evidence(test, attack.relevant_effect(scores), positive=test)
    return PositiveControl(
        value=measured_scores(attack, "attack", scores),
        controls={name: measured_scores(attack, name, scores) for name in attack.controls(attack.main_scope, scores)},
        lead=test.difference,
        p=test.p,
        succeeded=None if test.p is None else evidence.works,
    )


def _point(attack: AttackScores, size: int | None, scores: Scores) -> CurvePoint:
    controls = [name for name in scores.headline if name in CLIENT_CONTROLS]
    return CurvePoint(
        images=size,
        units=len(set(scores.units)),
        value=measured_scores(attack, "attack", scores),
        controls={name: measured_scores(attack, name, scores) for name in controls},
    )


def _over_rounds(
    attack: AttackScores, tests: AttackTests, rounds: int, size: int | None, scores: Scores
) -> RoundsPoint:
    point, most = _point(attack, size, scores), rounds == attack.most_rounds
    whole = tests.over_rounds if most and size is None else None
    verdict, reason = (None, None) if whole is None else alone(whole)
    return RoundsPoint(
        rounds=rounds,
        images=size,
        units=point.units,
        value=point.value,
        controls=point.controls,
        rise=_rise(attack, size, scores) if rounds > 1 else None,
        p_rise=tests.rises[size].p if most else None,
        p=whole.p if isinstance(whole, Evidence) else None,
        verdict=verdict,
        reason=reason,
    )


def _unaware(attack: AttackScores, scores: Scores) -> Unaware | None:
    ignorant = attack.unaware
    if ignorant is None:
        return None
    names = {name for scope in attack.scopes for name in attack.controls(scope, ignorant)}
    return Unaware(
        value=measured_scores(attack, "attack", ignorant),
        controls={name: measured_scores(attack, name, ignorant) for name in ignorant.headline if name in names},
        difference=_gain(attack, scores, ignorant, scores.units),
    )


def _rise(attack: AttackScores, size: int | None, scores: Scores) -> Measured:
    """The mean gain over the scores on one round, with an interval over clients."""
    shared = scores.shared_variance.get(ONE_ROUND, 0.0)
    return _gain(attack, scores, attack.one_round(size), scores.clients, shared)


def _gain(
    attack: AttackScores, scores: Scores, base: Scores, cluster: Sequence[str], shared_variance: float = 0.0
) -> Measured:
    """The mean of `scores` minus `base` on the same targets, with an interval over clusters.

    `shared_variance` is the variance of this mean from what clusters share.
    """
    gain = np.asarray(scores.headline["attack"]) - np.asarray(base.headline["attack"])
    found = mean_interval(gain, np.asarray(cluster), shared_variance=shared_variance)
    return Measured(value=found.value, ci95=found.ends, n=found.n, direction=attack.direction)
