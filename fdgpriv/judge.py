"""From marks to findings: one family of tests for the whole report, intervals for every figure."""

from collections.abc import Mapping, Sequence

import numpy as np

from fdgpriv.exam.marks import Marks
from fdgpriv.exam.paper import BOUNDS, CLIENT_LINE, Paper
from fdgpriv.finding import (
    AttackFinding,
    CurvePoint,
    Direction,
    Leakage,
    Measured,
    PositiveControl,
    RoundsPoint,
    Threat,
    Units,
)
from fdgpriv.roles import Attack
from fdgpriv.verdict import LEVEL, Answer, Question, clopper_pearson, family, leakage, mean_interval


def judge(papers: Mapping[str, Paper], seed: int) -> dict[str, AttackFinding]:
    """Findings of all papers of a report, their verdicts corrected together."""
    questions: dict[str, Question] = {}
    for key, paper in papers.items():
        positive = paper.positive()
        line = "client" if "client" in paper.attack.lines else "domain"
        proof = None if positive is None else f"{key}/positive"
        if positive is not None and proof is not None:
            questions[proof] = Question(paper.line(line, positive[1]))
        for name in ("client", "domain"):
            asked = paper.line(name, paper.marks.get(paper.size))
            questions[f"{key}/{name}"] = Question(asked, positive=proof, budget=_budget(paper))
        for rounds, size, marks in paper.by_rounds:
            if rounds == paper.most_rounds:
                questions[f"{key}/rise/{size}"] = Question(paper.rise(size, marks))
                if size is None:
                    asked = paper.line(line, marks)
                    questions[f"{key}/rounds"] = Question(asked, positive=proof, budget=_budget(paper))
    answers = family(questions, np.random.default_rng(seed))
    return {key: _finding(paper, key, answers) for key, paper in papers.items()}


def _budget(paper: Paper) -> str:
    return f"{paper.attack.budget()}, {paper.auxiliary_images:,} auxiliary images"


def _finding(paper: Paper, key: str, answers: Mapping[str, Answer]) -> AttackFinding:
    client, domain = answers[f"{key}/client"], answers[f"{key}/domain"]
    marks = paper.marks.get(paper.size, Marks())
    attack = paper.attack
    tables: dict[str, dict[str, Measured]] = {
        name: {attack.headline: _measured(paper, values, marks)} for name, values in marks.headline.items()
    }
    for metric, by_name in marks.details.items():
        for name, values in by_name.items():
            tables[name][metric] = _described(metric, values, marks)
    single = paper.marks.get(1)
    for name, figures in (single.realism if single else {}).items():
        tables.setdefault(name, {}).update({f"single_image {metric}": figure for metric, figure in figures.items()})
    for name, figures in (marks.realism if paper.size is None else {}).items():
        tables.setdefault(name, {}).update(figures)
    metrics = tables.pop("attack", {})
    bounds = {name: tables.pop(name) for name in BOUNDS if name in tables}
    for layer, layer_marks in paper.by_layer.items():
        metrics[f"{attack.headline}@{layer}"] = _measured(paper, layer_marks.headline["attack"], layer_marks)
    if (alone := paper.undefended or single) is not None and paper.size is None:
        bounds["single_image" if 1 in attack.sizes else "undefended"] = {
            attack.headline: _measured(paper, alone.headline["attack"], alone)
        }
    return AttackFinding(
        attack=attack.name(),
        family=attack.family,
        artifact=f"{paper.kind}:{paper.level}",
        shared=paper.shared,
        threat=Threat(
            role=paper.threat.role,
            auxiliary=str(paper.threat.auxiliary),
            capabilities=tuple(sorted(paper.threat.capabilities)),
        ),
        adaptive=True,
        n=len(marks.units),
        headline=attack.headline,
        chance=_chance(paper),
        metrics=metrics,
        controls=tables,
        upper_bounds=bounds,
        positive_control=_positive(paper, answers.get(f"{key}/positive")),
        curve=tuple(_point(paper, size, at) for size, at in paper.marks.items()) if len(paper.marks) > 1 else (),
        rounds=tuple(_over_rounds(paper, key, answers, *point) for point in paper.by_rounds),
        units=_units(paper, marks),
        leakage=_leakage(paper, marks, client, "client"),
        leakage_domain=_leakage(paper, marks, domain, "domain"),
        verdict=client.verdict,
        verdict_domain=domain.verdict,
        reason=client.reason,
        reason_domain=domain.reason,
        figures=paper.figures,
    )


def _chance(paper: Paper) -> Measured | None:
    if paper.chance is None:
        return None
    return Measured(value=paper.chance, direction=_direction(paper.attack))


def _direction(attack: Attack) -> Direction:
    return "higher_leaks" if attack.higher_leaks else "lower_leaks"


def _measured(paper: Paper, values: Sequence[float], marks: Marks) -> Measured:
    return _interval(values, marks, _direction(paper.attack), paper.attack.bounds)


def _described(metric: str, values: Sequence[float], marks: Marks) -> Measured:
    return _interval(values, marks, "lower_leaks" if metric.startswith("lpips") else "higher_leaks", None)


def _interval(
    values: Sequence[float], marks: Marks, direction: Direction, bounds: tuple[float, float] | None
) -> Measured:
    """The mean with its interval: exact where each unit has one hit or miss, else by t over units, within the bounds."""
    if set(values) <= {0.0, 1.0} and len(set(marks.units)) == len(values) > 0:
        found = clopper_pearson(int(sum(values)), len(values))
    else:
        found = mean_interval(np.asarray(values), np.asarray(marks.units))
    ends = found.ends
    if ends is not None and bounds is not None:
        ends = (max(bounds[0], ends[0]), min(bounds[1], ends[1]))
    return Measured(value=found.value, ci95=ends, n=found.n, direction=direction)


def _positive(paper: Paper, answer: Answer | None) -> PositiveControl | None:
    known = paper.positive()
    if known is None or answer is None or answer.test is None:
        return None
    _, marks = known
    line = "client" if "client" in paper.attack.lines else "domain"
    corrected = answer.p_corrected
    return PositiveControl(
        value=_measured(paper, marks.headline["attack"], marks),
        controls={name: _measured(paper, values, marks) for name, values in paper.controls(line, marks).items()},
        p=answer.test.p,
        p_corrected=corrected,
        succeeded=None if corrected is None else corrected <= LEVEL,
    )


def _point(paper: Paper, size: int | None, marks: Marks) -> CurvePoint:
    shown = {name: values for name, values in marks.headline.items() if name in CLIENT_LINE}
    return CurvePoint(
        images=size,
        units=len(set(marks.units)),
        value=_measured(paper, marks.headline["attack"], marks),
        controls={name: _measured(paper, values, marks) for name, values in shown.items()},
    )


def _over_rounds(
    paper: Paper, key: str, answers: Mapping[str, Answer], rounds: int, size: int | None, marks: Marks
) -> RoundsPoint:
    point = _point(paper, size, marks)
    most = rounds == paper.most_rounds
    risen, leak = answers.get(f"{key}/rise/{size}"), answers.get(f"{key}/rounds") if size is None else None
    tested = risen.test if most and risen else None
    return RoundsPoint(
        rounds=rounds,
        images=size,
        units=point.units,
        value=point.value,
        controls=point.controls,
        rise=_rise(paper, size, marks) if rounds > 1 else None,
        p_rise=tested.p if tested else None,
        p_rise_corrected=risen.p_corrected if tested and risen else None,
        verdict=leak.verdict if most and leak else None,
        p_corrected=leak.p_corrected if most and leak else None,
        reason=leak.reason if most and leak else None,
    )


def _rise(paper: Paper, size: int | None, marks: Marks) -> Measured:
    """By how much the marks exceed those on one round, over clients."""
    gain = np.asarray(marks.headline["attack"]) - np.asarray(paper.one_round(size).headline["attack"])
    found = mean_interval(gain, np.asarray(marks.clients))
    return Measured(value=found.value, ci95=found.ends, n=found.n, direction=_direction(paper.attack))


def _units(paper: Paper, marks: Marks) -> Units | None:
    if not marks.units:
        return None
    clients = set(marks.clients)
    return Units(
        kind="client" if paper.size is None else "target",
        n=len(set(marks.units)),
        federated=len(clients - paper.shadows),
        shadows=len(clients & paper.shadows),
    )


def _leakage(paper: Paper, marks: Marks, answer: Answer, line: str) -> Leakage:
    if answer.test is None:
        return Leakage(value=None, reason=answer.reason)
    test = answer.test
    margin = None if test.lower is None or test.upper is None else (test.lower, test.upper)
    shared = {
        "p": test.p,
        "p_corrected": answer.p_corrected,
        "margin": margin,
        "against": tuple(paper.controls(line, marks)),
    }
    ceiling = marks.headline.get("autoencoder")
    if ceiling is None:
        return Leakage(
            value=None, reason="this attack draws no images, so it has no decoder to measure against", **shared
        )
    sign = 1 if paper.attack.higher_leaks else -1
    attack, control, top = (
        sign * np.asarray(values)
        for values in (marks.headline["attack"], marks.headline[test.strongest_control], ceiling)
    )
    found = leakage(attack, control, top, np.asarray(marks.units))
    return Leakage(value=found.value, ci95=found.ends, reason=found.reason, **shared)
