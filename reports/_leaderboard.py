"""The content of a leaderboard: for each setting a table of methods by secrets, and accuracies over trainings."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from fdgpriv.results.accuracy import RETURNED, Accuracy
from fdgpriv.results.leaderboard import AuditedRun, Leaderboard, LeaderboardRow, Standings, WorstAnswer
from fdgpriv.results.question import Question
from fdgpriv.statistics.measured import Measured

from ._accuracy import RECOMPUTED, accuracy_over_trainings, difference
from ._bars import LeadBar, in_effects
from ._caveats import Caveats, caveats
from ._effects import amount, bound_in_words, effect_in_words, pooled_effect
from ._links import Anchors
from ._numbers import pooled, quantity, share
from ._tables import Section, Table, TableCell, text_cell, verdict_cell
from ._words import BECAUSE, SECRETS, artifact, artifact_of, defense, joined, role, scope, spoken, unique, upper

REPORT = "report.html"
NOTE = (
    "A cell has the worst answer about a secret over all adversaries, artifacts and runs of a method: of leaks the highest "
    "grade, then the largest lead. It links to the evidence in the run’s report. Below it stand the lead of that attack over "
    "its strongest control (the bar and ×: in multiples of the least that matters), in how many runs the worst answer has "
    "this verdict and grade, and how many of the run’s questions about the secret have this verdict. A method that shares "
    "more kinds of artifact is asked more questions. “Inconclusive” and “not asked” say nothing about safety, and “no leak "
    "found” is no proof of it."
)
ORDER = (
    "Methods are ordered by the number of secrets that were not asked about although something is shared, then by those with "
    "a severe leak, a moderate one, a trace, an inconclusive answer, and then by accuracy."
)


@dataclass(frozen=True)
class LeaderboardTable:
    """One setting: its title, what its runs have in common, what limits conclusions, the table, and accuracies."""

    title: str
    facts: tuple[tuple[str, str], ...]
    caveats: Caveats | None
    notes: tuple[str, ...]
    table: Table
    accuracy: tuple[Section, ...]


@dataclass(frozen=True)
class LeaderboardContent:
    """Everything that a leaderboard shows."""

    title: str
    note: str
    order: str
    tables: tuple[LeaderboardTable, ...]


def leaderboard_content(leaderboard: Leaderboard, folder: Path) -> LeaderboardContent:
    """The content; links lead from `folder` to the audits' reports."""
    methods = unique(row.method for standings in leaderboard.standings for row in standings.rows)
    datasets = unique(dict(standings.setting)["dataset"] for standings in leaderboard.standings)
    return LeaderboardContent(
        title=f"{quantity(len(methods), 'method')} on {joined(datasets)}",
        note=NOTE,
        order=ORDER,
        tables=tuple(_table(standings, leaderboard.baseline, folder) for standings in leaderboard.standings),
    )


def _table(standings: Standings, baseline: str, folder: Path) -> LeaderboardTable:
    setting = dict(standings.setting)
    named = {name: f"{name} {setting[name]}" for name in ("preset",) if name in setting}
    named |= {"clients": quantity(int(setting["clients"]), "client")} if setting.get("clients", "").isdigit() else {}
    headings = ("Method", "Target accuracy", *(SECRETS[secret] for secret in standings.secrets))
    rows = tuple(_row(row, standings.secrets, folder) for row in standings.rows)
    return LeaderboardTable(
        title=", ".join([setting["dataset"], *named.values()]),
        facts=(*((upper(name), value) for name, value in standings.setting), *_trainings(standings)),
        caveats=caveats(standings.results),
        notes=standings.notes,
        table=Table(headings, rows),
        accuracy=accuracy_over_trainings(standings.results, baseline),
    )


def _trainings(standings: Standings) -> tuple[tuple[str, str], ...]:
    runs = standings.results.runs
    targets, seeds = unique(run.target or "" for run in runs), unique(str(run.seed) for run in runs)
    facts = (("Targets", joined([target for target in targets if target])), ("Seeds", joined(seeds)))
    return tuple((name, value) for name, value in facts if value)


def _row(row: LeaderboardRow, secrets: Sequence[str], folder: Path) -> tuple[TableCell, ...]:
    absent = "Nothing shared" if row.shares_nothing else "Not asked"
    answers = (_answer_cell(row.answers.get(secret), folder, absent) for secret in secrets)
    return (_method_cell(row), _accuracy_cell(row), *answers)


def _method_cell(row: LeaderboardRow) -> TableCell:
    lines = [upper(defense(row.defense))] if row.defense != "none" else []
    lines.append(quantity(len(row.runs), "run"))
    if reasons := [run.run.ended for run in row.runs if run.run.ended is not None]:
        lines.append(f"{len(reasons)} of them failed: {reasons[0]}")
    return text_cell(row.method, "\n".join(lines))


def _answer_cell(answer: WorstAnswer | None, folder: Path, absent: str) -> TableCell:
    """The worst verdict with its lead, attack, artifact and adversary, linked to its evidence; `absent` without an answer."""
    if answer is None:
        return text_cell(absent)
    question = answer.question
    bar = question.lead and question.relevant and LeadBar.of(in_effects(question.lead, question.relevant))
    lines = [*_lines(answer), *_counts(answer)] if question.verdict != "not_applicable" else []
    cell = verdict_cell(question.verdict, "\n".join(line for line in lines if line), question.grade, bar or None)
    return replace(cell, address=_address(answer.source, question, folder))


def _lines(answer: WorstAnswer) -> list[str]:
    """The lead of a leak, its attack, artifact and adversary; why a question is open; what no leak found excludes."""
    question, strongest = answer.question, answer.question.strongest
    agreement = f"in {answer.agreeing} of {answer.asking} runs" if answer.asking > 1 else ""
    if question.inconclusive_because:
        return [upper(_listed(BECAUSE[question.inconclusive_because], agreement))]
    if question.verdict == "leak" and strongest is not None:
        lead = _amount(question, question.lead)
        about = scope(question) if question.scope == "domain" else ""
        by = f"by {joined([role(name) for name in question.adversaries])}"
        place = f"{spoken(strongest.attack)} on {artifact(artifact_of(question))}"
        return [upper(_listed(lead and f"lead {lead}", agreement)), upper(_listed(place, by, about))]
    effect = pooled_effect([(answer.source.run, question)])
    bound = (bound_in_words(effect) or effect_in_words(effect)) if effect else ""
    return [upper(_listed(bound, agreement))]


def _counts(answer: WorstAnswer) -> list[str]:
    """How many of the run's questions have this answer; of several runs which is shown, and their mean lead."""
    question, run = answer.question, answer.source.run
    same = Counter(other.verdict for other in run.questions if other.secret == question.secret)
    lines = [f"{same[question.verdict]} of {quantity(same.total(), 'question')}" if same.total() > 1 else ""]
    if answer.asking > 1:
        training = f"target {run.target}, seed {run.seed}" if run.target else f"seed {run.seed}"
        several = question.verdict == "leak" and len(answer.leads) > 1
        mean = f"; mean of {len(answer.leads)} runs {_amount(question, pooled(answer.leads))}" if several else ""
        lines.append(f"Shown: {training}{mean}")
    return lines


def _listed(*phrases: str) -> str:
    """The phrases that are not empty."""
    return ", ".join(phrase for phrase in phrases if phrase)


def _amount(question: Question, lead: Measured | None) -> str:
    """A lead in the metric's unit; empty if unknown."""
    if lead is None or lead.value is None or question.strongest is None:
        return ""
    return amount(question.strongest.metric, lead.value)


def _accuracy_cell(row: LeaderboardRow) -> TableCell:
    """Target accuracy over trainings with its difference from the baseline, of each kind of model that is returned."""
    if not row.accuracies:
        return text_cell("–")
    first, *others = row.accuracies
    seeds = first.target.n or 0
    lines = [first.model, f"n = {quantity(seeds, 'seed')}" if seeds else "", _against(first)]
    if first.recomputed_statistics:
        lines.append(upper(RECOMPUTED))
    for other in others:
        lines.append(f"{other.model}: {share(other.target)}")
        lines.append(_against(other))
    return text_cell(share(first.target), "\n".join(line for line in lines if line))


def _against(accuracy: Accuracy) -> str:
    """The difference from the baseline in points, by pairs; why there is none although the baseline was run."""
    if not accuracy.base:
        return f"no difference: {accuracy.unmatched}" if accuracy.unmatched else ""
    points = difference(accuracy.leads.get(RETURNED), accuracy.target.n or 0)
    return f"{points} points against {accuracy.base}" if points else ""


def _address(source: AuditedRun, question: Question, folder: Path) -> str:
    """From `folder` to the evidence on this question in the run's report; empty if there is no report."""
    report = source.folder / REPORT
    if not report.is_file():
        return ""
    try:
        path = Path(os.path.relpath(report.resolve(), folder.resolve())).as_posix()
    except ValueError:  # on another drive
        return ""
    return f"{quote(path)}#{Anchors(source.results.runs).question(source.run, question)}"
