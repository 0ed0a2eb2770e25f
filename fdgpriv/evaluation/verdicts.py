"""Turns scores into findings: tests all hypotheses of a report as one family, and computes all intervals."""

from collections.abc import Mapping, Sequence

import numpy as np

from fdgpriv.evaluation.attack_scores import BOUNDS, CLIENT_CONTROLS, AttackScores
from fdgpriv.evaluation.scores import Scores
from fdgpriv.results.attack_finding import (
    AttackFinding,
    CurvePoint,
    Leakage,
    PositiveControl,
    RoundsPoint,
    Units,
)
from fdgpriv.statistics.interval import clopper_pearson, leakage, mean_interval
from fdgpriv.statistics.measured import Direction, Measured
from fdgpriv.statistics.multiplicity import Outcome, TestedHypothesis, family
from fdgpriv.statistics.paired import LEVEL

SCOPES = ("client", "domain")


def attack_findings(attacks: Mapping[str, AttackScores], seed: int) -> dict[str, AttackFinding]:
    """Findings of all attacks of a report, their p-values corrected together."""
    hypotheses: dict[str, TestedHypothesis] = {}
    for key, one in attacks.items():
        positive = one.positive()
        proof = None if positive is None else f"{key}/positive"
        budget = f"{one.budget}, {one.auxiliary_images:,} auxiliary images"
        if positive is not None and proof is not None:
            hypotheses[proof] = TestedHypothesis(one.hypothesis(one.main_scope, positive))
        for scope in SCOPES:
            hypothesis = one.hypothesis(scope, one.by_size.get(one.size))
            hypotheses[f"{key}/{scope}"] = TestedHypothesis(hypothesis, positive=proof, budget=budget)
        for rounds, size, scores in one.by_rounds:
            if rounds == one.most_rounds:
                hypotheses[f"{key}/rise/{size}"] = TestedHypothesis(one.rise(size, scores))
                if size is None:
                    hypothesis = one.hypothesis(one.main_scope, scores)
                    hypotheses[f"{key}/rounds"] = TestedHypothesis(hypothesis, positive=proof, budget=budget)
    outcomes = family(hypotheses, np.random.default_rng(seed))
    return {key: _finding(one, key, outcomes) for key, one in attacks.items()}


def _finding(attack: AttackScores, key: str, outcomes: Mapping[str, Outcome]) -> AttackFinding:
    client, domain = outcomes[f"{key}/client"], outcomes[f"{key}/domain"]
    scores = attack.by_size.get(attack.size, Scores())
    tables: dict[str, dict[str, Measured]] = {
        name: {attack.metric: _measured(attack, values, scores)} for name, values in scores.headline.items()
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
    for name, ablated in attack.ablations.items():
        metrics[f"{attack.metric}@{name}"] = _measured(attack, ablated.headline["attack"], ablated)
    if (bare := attack.undefended or single) is not None and attack.size is None:
        bounds["single_image" if attack.single_images else "undefended"] = {
            attack.metric: _measured(attack, bare.headline["attack"], bare)
        }
    return AttackFinding(
        attack=attack.attack,
        family=attack.family,
        artifact=f"{attack.kind}:{attack.level}",
        shared=attack.shared,
        threat=attack.threat,
        adaptive=True,
        n=len(scores.units),
        headline=attack.metric,
        chance=None if attack.chance is None else Measured(value=attack.chance, direction=attack.direction),
        metrics=metrics,
        controls=tables,
        upper_bounds=bounds,
        positive_control=_positive(attack, outcomes.get(f"{key}/positive")),
        curve=tuple(_point(attack, size, at) for size, at in attack.by_size.items()) if len(attack.by_size) > 1 else (),
        rounds=tuple(_over_rounds(attack, key, outcomes, *point) for point in attack.by_rounds),
        units=_units(attack, scores),
        leakage=_leakage(attack, scores, client, "client"),
        leakage_domain=_leakage(attack, scores, domain, "domain"),
        verdict=client.verdict,
        verdict_domain=domain.verdict,
        reason=client.reason,
        reason_domain=domain.reason,
        figures=attack.figures,
    )


def _measured(attack: AttackScores, values: Sequence[float], scores: Scores) -> Measured:
    return _interval(values, scores, attack.direction, attack.bounds)


def _detail(metric: str, values: Sequence[float], scores: Scores) -> Measured:
    return _interval(values, scores, "lower_leaks" if metric.startswith("lpips") else "higher_leaks", None)


def _interval(
    values: Sequence[float], scores: Scores, direction: Direction, bounds: tuple[float, float] | None
) -> Measured:
    """The mean with its interval: exact where each unit has one 0 or 1, else by Student's t over units, cut to the bounds."""
    if set(values) <= {0.0, 1.0} and len(set(scores.units)) == len(values) > 0:
        found = clopper_pearson(int(sum(values)), len(values))
    else:
        found = mean_interval(np.asarray(values), np.asarray(scores.units))
    ends = found.ends
    if ends is not None and bounds is not None:
        ends = (max(bounds[0], ends[0]), min(bounds[1], ends[1]))
    return Measured(value=found.value, ci95=ends, n=found.n, direction=direction)


def _positive(attack: AttackScores, outcome: Outcome | None) -> PositiveControl | None:
    scores = attack.positive()
    if scores is None or outcome is None or outcome.test is None:
        return None
    corrected = outcome.p_corrected
    return PositiveControl(
        value=_measured(attack, scores.headline["attack"], scores),
        controls={
            name: _measured(attack, values, scores)
            for name, values in attack.controls(attack.main_scope, scores).items()
        },
        p=outcome.test.p,
        p_corrected=corrected,
        succeeded=None if corrected is None else corrected <= LEVEL,
    )


def _point(attack: AttackScores, size: int | None, scores: Scores) -> CurvePoint:
    controls = {name: values for name, values in scores.headline.items() if name in CLIENT_CONTROLS}
    return CurvePoint(
        images=size,
        units=len(set(scores.units)),
        value=_measured(attack, scores.headline["attack"], scores),
        controls={name: _measured(attack, values, scores) for name, values in controls.items()},
    )


def _over_rounds(
    attack: AttackScores, key: str, outcomes: Mapping[str, Outcome], rounds: int, size: int | None, scores: Scores
) -> RoundsPoint:
    point = _point(attack, size, scores)
    most = rounds == attack.most_rounds
    risen, leak = outcomes.get(f"{key}/rise/{size}"), outcomes.get(f"{key}/rounds") if size is None else None
    tested = risen.test if most and risen else None
    return RoundsPoint(
        rounds=rounds,
        images=size,
        units=point.units,
        value=point.value,
        controls=point.controls,
        rise=_rise(attack, size, scores) if rounds > 1 else None,
        p_rise=tested.p if tested else None,
        p_rise_corrected=risen.p_corrected if tested and risen else None,
        verdict=leak.verdict if most and leak else None,
        p_corrected=leak.p_corrected if most and leak else None,
        reason=leak.reason if most and leak else None,
    )


def _rise(attack: AttackScores, size: int | None, scores: Scores) -> Measured:
    """The mean gain over the scores on one round, with an interval over clients."""
    gain = np.asarray(scores.headline["attack"]) - np.asarray(attack.one_round(size).headline["attack"])
    found = mean_interval(gain, np.asarray(scores.clients))
    return Measured(value=found.value, ci95=found.ends, n=found.n, direction=attack.direction)


def _units(attack: AttackScores, scores: Scores) -> Units | None:
    if not scores.units:
        return None
    clients = set(scores.clients)
    return Units(
        kind="client" if attack.size is None else "target",
        n=len(set(scores.units)),
        federated=len(clients - set(attack.shadows)),
        shadows=len(clients & set(attack.shadows)),
    )


def _leakage(attack: AttackScores, scores: Scores, outcome: Outcome, scope: str) -> Leakage:
    if outcome.test is None:
        return Leakage(value=None, reason=outcome.reason)
    test = outcome.test
    margin = None if test.lower is None or test.upper is None else (test.lower, test.upper)
    shared = {
        "p": test.p,
        "p_corrected": outcome.p_corrected,
        "margin": margin,
        "against": tuple(attack.controls(scope, scores)),
    }
    ceiling = scores.headline.get("autoencoder")
    if ceiling is None:
        return Leakage(
            value=None, reason="this attack draws no images, so it has no decoder to measure against", **shared
        )
    own, control, top = (
        attack.sign * np.asarray(values)
        for values in (scores.headline["attack"], scores.headline[test.strongest_control], ceiling)
    )
    found = leakage(own, control, top, np.asarray(scores.units))
    return Leakage(value=found.value, ci95=found.ends, reason=found.reason, **shared)
