"""results.csv: every figure of every run in long form, one row each, for a spreadsheet or a data frame."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from fdgpriv.report import Report
from fdgpriv.results.accuracy import RULES, accuracies, several_trainings
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question
from fdgpriv.results.records import FlatRow, identity
from fdgpriv.results.run import Run
from fdgpriv.statistics.measured import Measured

COLUMNS = (
    *("method", "dataset", "target", "seed", "defense"),
    *("entry", "attack", "secret", "artifact", "shared", "role", "auxiliary", "scope"),
    *("metric", "headline", "source", "name", "images"),
    *("value", "ci_low", "ci_high", "n", "direction", "reason"),
    *("verdict", "because", "p", "q", "p_holm", "beyond_doubt", "marked"),
    *("grade", "share_of_achievable", "resolution", "upper_bound", "relevant", "planted", "units", "units_kind"),
)


class Csv(Report):
    """One row per run and question, and one per run, attack, metric and source.

    `source` is question (its row has the verdict, and the figure of its strongest attack), question_control,
    question_lead, question_recovered; attack, control, upper_bound, apart (federated or shadow
    clients alone), chance, positive_control, positive_control_control,
    test (one for each scope: its lead, p and verdict), share_of_the_way (that lead on the way to the upper bound), curve,
    curve_control, unaware (by an adversary that does not know the defense), unaware_control, knowing_minus_unaware, rounds,
    rounds_control, rise_over_rounds; or utility. `name` says which control or bound, or how many rounds and which
    control; `entry` counts a run's questions or attacks from 1. Rows of the source over_seeds stand
    last: means over n seeds, of each target, and where no target is named over targets first; then by the round whose
    model counts, and minus FedAvg by pairs of target and seed. Rows of the source utility whose `name` is last_round,
    selected_round or last_five are by such a rule too; without name they are of the model that the method returns.
    """

    filename: ClassVar[str] = "results.csv"

    def render(self, results: Results, folder: Path) -> str:
        """The table; no cell can start a formula."""
        page = io.StringIO()
        table = csv.DictWriter(page, COLUMNS, lineterminator="\n", extrasaction="raise", restval="")
        table.writeheader()
        for run in results.runs:
            for row in _rows(run):
                table.writerow({name: _plain(value) for name, value in row.items()})
        for row in _over_seeds(results) if several_trainings(results) else ():
            table.writerow({name: _plain(value) for name, value in row.items()})
        return page.getvalue()


def _plain(value: str | int | float | bool | None) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        value = " ".join(value.split())
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t")) else value
    return value


def _rows(run: Run) -> Iterator[FlatRow]:
    where = identity(run)
    if run.utility is not None:
        for name in ("source_accuracy", "target_accuracy", "calibration_error"):
            yield {**where, "metric": name, "source": "utility", **_figure(getattr(run.utility, name))}
        for name in ("source_accuracy", "target_accuracy") if run.utility.personal else ():
            figure = _figure(getattr(run.utility.personal, name))
            yield {**where, "metric": name, "source": "utility of each client's own model", **figure}
        for rule in RULES:
            for name in ("source_accuracy", "target_accuracy") if (one := getattr(run.utility, rule)) else ():
                yield {**where, "metric": name, "source": "utility", "name": rule, **_figure(getattr(one, name))}
    for entry, question in enumerate(run.questions, start=1):
        for row in _question(question):
            yield {**where, "entry": entry, **row}
    for entry, finding in enumerate(run.attacks, start=1):
        head: FlatRow = {**where, "entry": entry, **_heading(finding)}
        if not finding.metrics:
            yield {**head, "source": "attack", "reason": finding.reason}
        for row in _figures(finding):
            yield {**head, "headline": row["metric"] == finding.headline, **row}


def _question(question: Question) -> Iterator[FlatRow]:
    artifact = f"{question.artifact}:{question.level}"
    roles = " ".join(question.adversaries)
    head: FlatRow = {"artifact": artifact, "shared": True, "role": roles, "secret": question.secret}
    head["scope"] = question.scope
    names = (
        "verdict",
        "p",
        "q",
        "p_holm",
        "beyond_doubt",
        "grade",
        "share_of_achievable",
        "resolution",
        "upper_bound",
        "planted",
        "relevant",
    )
    answer: FlatRow = {name: getattr(question, name) for name in names} | {"because": question.inconclusive_because}
    one = question.strongest
    head |= {"attack": one.attack, "metric": one.metric} if one else {}
    yield {**head, "source": "question", **(_figure(one.value) if one else {}), **answer, "reason": question.reason}
    if one is not None:
        yield {**head, "source": "question_control", "name": one.control, **_figure(one.control_value)}
        yield {
            **head,
            "source": "question_lead",
            "name": one.control,
            **(_figure(question.lead) if question.lead else {}),
        }
    if question.recovered is not None:
        yield {**head, "metric": "recovered", "source": "question_recovered", **_figure(question.recovered)}


def _over_seeds(results: Results) -> Iterator[FlatRow]:
    for row in accuracies(results):
        where: FlatRow = {"method": row.method, "dataset": results.dataset.name, "defense": row.defense}
        lacking = f"missing: {'; '.join(row.missing)}" if row.missing else None
        means = {"target_accuracy": row.target, "source_accuracy": row.source}
        for line in _table("over_seeds", row.model, means):
            yield {**where, **line, "reason": line["reason"] or lacking}
        for target, figure in row.by_target.items():
            yield {**where, "target": target, **next(_table("over_seeds", row.model, {"target_accuracy": figure}))}
        by_rule = {f"target_accuracy, {rule}": figure for rule, figure in row.by_rule.items()}
        by_rule |= {f"target_accuracy, {rule}, minus {row.base}": figure for rule, figure in row.leads.items()}
        for line in _table("over_seeds", row.model, by_rule):
            yield {**where, **line}
        if row.unmatched:
            none = Measured(value=None, n=0, direction="higher_better", reason=row.unmatched)
            yield {**where, **next(_table("over_seeds", row.model, {"target_accuracy, returned, minus fedavg": none}))}


def _heading(finding: AttackFinding) -> FlatRow:
    return {
        "attack": finding.attack,
        "secret": finding.secret,
        "artifact": finding.artifact,
        "shared": finding.shared,
        "role": finding.threat.role,
        "auxiliary": finding.threat.auxiliary,
        "units": finding.units.n if finding.units else None,
        "units_kind": finding.units.kind if finding.units else None,
    }


def _tests(finding: AttackFinding) -> Iterator[FlatRow]:
    names = ("verdict", "p", "marked", "resolution", "upper_bound", "relevant", "planted")
    for scope, test in finding.leakage.items():
        lead = _figure(test.lead) if test.lead else {}
        found: FlatRow = {name: getattr(test, name) for name in names}
        yield {"metric": finding.headline, "scope": scope, "source": "test", "name": test.control, **lead, **found,
               "reason": test.why}  # fmt: skip
        if test.value is not None:
            low, high = test.ci95 or (None, None)
            way: FlatRow = {"source": "share_of_the_way", "value": test.value, "ci_low": low, "ci_high": high}
            yield {"metric": finding.headline, "scope": scope, **way}


def _figures(finding: AttackFinding) -> Iterator[FlatRow]:
    head = finding.headline
    yield from _tests(finding)
    yield from _table("attack", "", finding.metrics)
    for name, table in finding.controls.items():
        yield from _table("control", name, table)
    for name, table in finding.upper_bounds.items():
        yield from _table("upper_bound", name, table)
    for name, figure in finding.apart.items():
        yield from _table("apart", name, {head: figure})
    if finding.chance is not None:
        yield from _table("chance", "", {head: finding.chance})
    if finding.positive_control is not None:
        yield from _table("positive_control", "", {head: finding.positive_control.value})
        for name, figure in finding.positive_control.controls.items():
            yield from _table("positive_control_control", name, {head: figure})
    if finding.unaware is not None:
        yield from _table("unaware", "", {head: finding.unaware.value})
        for name, figure in finding.unaware.controls.items():
            yield from _table("unaware_control", name, {head: figure})
        yield from _table("knowing_minus_unaware", "", {head: finding.unaware.difference})
    for point in finding.curve:
        images: FlatRow = {"images": "all" if point.images is None else point.images}
        for row in _table("curve", "", {head: point.value}):
            yield {**row, **images}
        for name, figure in point.controls.items():
            for row in _table("curve_control", name, {head: figure}):
                yield {**row, **images}
    if finding.view is not None:
        yield {"metric": head, "source": "view", "name": "rounds", "value": finding.view.rounds}
        yield {"metric": head, "source": "view", "name": "clients", "value": finding.view.clients}
    for at in finding.rounds:
        name, few = f"{at.rounds} round{'s' * (at.rounds > 1)}", "all" if at.images is None else at.images
        for row in _table("rounds", name, {head: at.value}):
            yield {**row, "images": few, "p": at.p, "verdict": at.verdict}
        for row in _table("rise_over_rounds", name, {head: at.rise} if at.rise else {}):
            yield {**row, "images": few, "p": at.p_rise}
        for control, figure in at.controls.items():
            for row in _table("rounds_control", f"{name}: {control}", {head: figure}):
                yield {**row, "images": few}


def _table(source: str, name: str, table: Mapping[str, Measured]) -> Iterator[FlatRow]:
    for metric, figure in table.items():
        yield {"metric": metric, "source": source, "name": name, **_figure(figure)}


def _figure(figure: Measured) -> FlatRow:
    low, high = figure.ci95 or (None, None)
    return {
        "value": figure.value,
        "ci_low": low,
        "ci_high": high,
        "n": figure.n,
        "direction": figure.direction,
        "reason": figure.reason,
    }
