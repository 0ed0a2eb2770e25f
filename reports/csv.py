"""results.csv: every figure of every run in long form, one row each, for a spreadsheet or a data frame."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from fdgpriv.report import Report
from fdgpriv.results.accuracy import RULES, accuracies, is_averaged
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question
from fdgpriv.results.records import FlatRow, identity
from fdgpriv.results.run import Run
from fdgpriv.results.utility_finding import Utility
from fdgpriv.statistics.measured import Measured

COLUMNS = (
    *("method", "dataset", "target", "seed", "defense"),
    *("entry", "attack", "secret", "artifact", "shared", "role", "auxiliary", "scope"),
    *("metric", "headline", "source", "name", "images"),
    *("value", "ci_low", "ci_high", "n", "direction", "reason"),
    *("verdict", "because", "p", "q", "p_holm", "beyond_doubt", "marked"),
    *("grade", "share_of_achievable", "resolution", "upper_bound", "relevant", "planted", "units", "units_kind"),
    *("clients", "simulated_clients"),
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
            for row in _run_rows(run):
                table.writerow({name: _spreadsheet_value(value) for name, value in row.items()})
        for row in _rows_over_seeds(results) if is_averaged(results) else ():
            table.writerow({name: _spreadsheet_value(value) for name, value in row.items()})
        return page.getvalue()


def _spreadsheet_value(value: str | int | float | bool | None) -> str | int | float:
    """The value as a cell that no spreadsheet interprets as a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        value = " ".join(value.split())
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t")) else value
    return value


def _run_rows(run: Run) -> Iterator[FlatRow]:
    run_columns = identity(run)
    for row in _utility_rows(run.utility) if run.utility is not None else ():
        yield {**run_columns, **row}
    for entry, question in enumerate(run.questions, start=1):
        for row in _question_rows(question):
            yield {**run_columns, "entry": entry, **row}
    for entry, finding in enumerate(run.attacks, start=1):
        attack_columns: FlatRow = {**run_columns, "entry": entry, **_attack_columns(finding)}
        if not finding.metrics:
            yield {**attack_columns, "source": "attack", "reason": finding.reason}
        for row in _attack_rows(finding):
            yield {**attack_columns, "headline": row["metric"] == finding.headline, **row}


def _utility_rows(utility: Utility) -> Iterator[FlatRow]:
    accuracies = ("source_accuracy", "target_accuracy")
    for name in (*accuracies, "calibration_error"):
        yield {"metric": name, "source": "utility", **_figure(getattr(utility, name))}
    if utility.adapted_accuracy is not None:
        yield {"metric": "adapted_accuracy", "source": "utility", **_figure(utility.adapted_accuracy)}
    for name in accuracies if utility.personal else ():
        figure = _figure(getattr(utility.personal, name))
        yield {"metric": name, "source": "utility of each client's own model", **figure}
    for rule in RULES:
        of_round = getattr(utility, rule)
        for name in accuracies if of_round else ():
            yield {"metric": name, "source": "utility", "name": rule, **_figure(getattr(of_round, name))}


def _question_rows(question: Question) -> Iterator[FlatRow]:
    artifact = f"{question.artifact}:{question.level}"
    roles = " ".join(question.adversaries)
    columns: FlatRow = {"artifact": artifact, "shared": True, "role": roles, "secret": question.secret}
    columns["scope"] = question.scope
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
    strongest = question.strongest
    columns |= {"attack": strongest.attack, "metric": strongest.metric} if strongest else {}
    value = _figure(strongest.value) if strongest else {}
    yield {**columns, "source": "question", **value, **answer, "reason": question.reason}
    if strongest is not None:
        control = {"name": strongest.control, **_figure(strongest.control_value)}
        yield {**columns, "source": "question_control", **control}
        lead = _figure(question.lead) if question.lead else {}
        yield {**columns, "source": "question_lead", "name": strongest.control, **lead}
    if question.recovered is not None:
        yield {**columns, "metric": "recovered", "source": "question_recovered", **_figure(question.recovered)}


def _rows_over_seeds(results: Results) -> Iterator[FlatRow]:
    for row in accuracies(results):
        columns: FlatRow = {"method": row.method, "dataset": results.dataset.name, "defense": row.defense}
        missing = f"missing: {'; '.join(row.missing)}" if row.missing else None
        means = {"target_accuracy": row.target, "source_accuracy": row.source}
        for figure_row in _figure_rows("over_seeds", row.model, means):
            yield {**columns, **figure_row, "reason": figure_row["reason"] or missing}
        for target, figure in row.by_target.items():
            yield {
                **columns,
                "target": target,
                **next(_figure_rows("over_seeds", row.model, {"target_accuracy": figure})),
            }
        by_rule = {f"target_accuracy, {rule}": figure for rule, figure in row.by_rule.items()}
        by_rule |= {f"target_accuracy, {rule}, minus {row.base}": figure for rule, figure in row.leads.items()}
        for figure_row in _figure_rows("over_seeds", row.model, by_rule):
            yield {**columns, **figure_row}
        if row.unmatched:
            no_figure = Measured(value=None, n=0, direction="higher_better", reason=row.unmatched)
            yield {
                **columns,
                **next(_figure_rows("over_seeds", row.model, {"target_accuracy, returned, minus fedavg": no_figure})),
            }


def _attack_columns(finding: AttackFinding) -> FlatRow:
    return {
        "attack": finding.attack,
        "secret": finding.secret,
        "artifact": finding.artifact,
        "shared": finding.shared,
        "role": finding.threat.role,
        "auxiliary": finding.threat.auxiliary,
        "units": finding.units.n if finding.units else None,
        "units_kind": finding.units.kind if finding.units else None,
        "clients": finding.units.federated if finding.units else None,
        "simulated_clients": finding.units.shadows if finding.units else None,
    }


def _test_rows(finding: AttackFinding) -> Iterator[FlatRow]:
    names = ("verdict", "p", "marked", "resolution", "upper_bound", "relevant", "planted")
    for scope, test in finding.leakage.items():
        lead = _figure(test.lead) if test.lead else {}
        columns: FlatRow = {"metric": finding.headline, "scope": scope}
        answer: FlatRow = {name: getattr(test, name) for name in names}
        yield {**columns, "source": "test", "name": test.control, **lead, **answer, "reason": test.why}
        if test.value is not None:
            low, high = test.ci95 or (None, None)
            yield {**columns, "source": "share_of_the_way", "value": test.value, "ci_low": low, "ci_high": high}


def _attack_rows(finding: AttackFinding) -> Iterator[FlatRow]:
    headline = finding.headline
    yield from _test_rows(finding)
    yield from _figure_rows("attack", "", finding.metrics)
    for name, table in finding.controls.items():
        yield from _figure_rows("control", name, table)
    for name, table in finding.upper_bounds.items():
        yield from _figure_rows("upper_bound", name, table)
    for name, figure in finding.apart.items():
        yield from _figure_rows("apart", name, {headline: figure})
    if finding.chance is not None:
        yield from _figure_rows("chance", "", {headline: finding.chance})
    if finding.positive_control is not None:
        yield from _figure_rows("positive_control", "", {headline: finding.positive_control.value})
        for name, figure in finding.positive_control.controls.items():
            yield from _figure_rows("positive_control_control", name, {headline: figure})
    if finding.unaware is not None:
        yield from _figure_rows("unaware", "", {headline: finding.unaware.value})
        for name, figure in finding.unaware.controls.items():
            yield from _figure_rows("unaware_control", name, {headline: figure})
        yield from _figure_rows("knowing_minus_unaware", "", {headline: finding.unaware.difference})
    for point in finding.curve:
        images: FlatRow = {"images": "all" if point.images is None else point.images}
        for row in _figure_rows("curve", "", {headline: point.value}):
            yield {**row, **images}
        for name, figure in point.controls.items():
            for row in _figure_rows("curve_control", name, {headline: figure}):
                yield {**row, **images}
    if finding.view is not None:
        yield {"metric": headline, "source": "view", "name": "rounds", "value": finding.view.rounds}
        yield {"metric": headline, "source": "view", "name": "clients", "value": finding.view.clients}
    for of_rounds in finding.rounds:
        name = f"{of_rounds.rounds} round{'s' * (of_rounds.rounds > 1)}"
        size: FlatRow = {"images": "all" if of_rounds.images is None else of_rounds.images}
        for row in _figure_rows("rounds", name, {headline: of_rounds.value}):
            yield {**row, **size, "p": of_rounds.p, "verdict": of_rounds.verdict}
        for row in _figure_rows("rise_over_rounds", name, {headline: of_rounds.rise} if of_rounds.rise else {}):
            yield {**row, **size, "p": of_rounds.p_rise}
        for control, figure in of_rounds.controls.items():
            for row in _figure_rows("rounds_control", f"{name}: {control}", {headline: figure}):
                yield {**row, **size}


def _figure_rows(source: str, name: str, table: Mapping[str, Measured]) -> Iterator[FlatRow]:
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
