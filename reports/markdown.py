"""report.md: a short form of report.html in Markdown tables, for a pull request or a terminal."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from fdgpriv.report import Report
from fdgpriv.results.comparison import Comparison
from fdgpriv.results.finding import Results
from fdgpriv.results.leaderboard import Leaderboard

from ._caveats import Caveats
from ._comparison import AuditChanges, comparison_content
from ._content import ReportContent, RunEvidence, report_content
from ._leaderboard import leaderboard_content
from ._tables import Picture, Section, Table, TableCell, count_cell, text_cell, verdict_cell
from ._words import NOT_ATTACKED, OUTCOMES, verdict_words

_SPECIAL = re.compile(r"([\\`*\[\]{}~#!$^]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+=:](?=\s|$|[-=:]))")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")  # would start a list within a list item


class Markdown(Report):
    """The report in short; names from outside cannot start a tag, a link or a table cell."""

    filename: ClassVar[str] = "report.md"

    def render(self, results: Results, folder: Path) -> str:
        """The document; pictures that exist in `folder` are relative links."""
        content = report_content(results)
        blocks = [f"# Privacy audit: {safe(content.title)}", safe(content.subtitle)]
        blocks += _caveats(content.caveats)
        blocks += [f"**{verdict_words(content.verdict, content.grade)}.** {safe(content.sentence)}"]
        blocks += ["## What defenses cost, and what they leave"] if content.frontier else []
        blocks += _sections(content.frontier, folder)
        blocks += ["## What leaks to whom"]
        blocks += [_table(content.answers)] if content.answers else []
        blocks += _sections(content.matrix, folder) or [NOT_ATTACKED]
        blocks += ["## What reconstructions look like"] if content.reconstructions else []
        blocks += _pictures([Picture(entry.file, entry.caption) for entry in content.reconstructions], folder)
        if content.curves:
            blocks.append("## Leakage by number of images")
            blocks.append("\n".join(f"- {safe(curve.caption)} {safe(curve.alt)}" for curve in content.curves))
        blocks += ["## What to do", *_advice(content)] if content.advice else []
        blocks += ["## What left the client: the ledger"]
        blocks += _sections(content.ledgers, folder) or ["Nothing crossed the wire."]
        blocks += ["## Evidence, question by question"]
        blocks += [block for run in content.evidence for block in _run_evidence(run, folder)] or [NOT_ATTACKED]
        blocks += ["## The paper’s claims"]
        blocks += _sections(content.claims, folder) or ["No claim of a paper was put to the test in this run."]
        blocks += ["## Accuracy over targets and seeds"] if content.accuracy_over_trainings else []
        blocks += _sections(content.accuracy_over_trainings, folder)
        blocks += ["## Utility", *_sections([content.utility, *content.accuracy_of_runs], folder)]
        blocks += ["## Differential privacy: epsilon", _table(content.privacy)]
        blocks += ["## What was not measured", *(_sections(content.not_measured, folder) or ["The run names nothing."])]
        blocks += [_table(run.not_applicable) for run in content.evidence if run.not_applicable.rows]
        blocks += ["## Pictures of the run"]
        blocks += _sections(content.pictures, folder) or ["This audit left no further pictures."]
        return "\n\n".join(block for block in [*blocks, *_setup(content)] if block) + "\n"

    def compared(self, comparison: Comparison) -> str:
        """The comparison in tables, for a comment on a pull request."""
        content = comparison_content(comparison)
        blocks = [f"# Privacy audits compared: {safe(content.title)}"]
        blocks += [f"**{OUTCOMES[content.outcome]}.** {safe(content.sentence)}", safe(content.note)]
        blocks += [block for audit in content.audits for block in _audit_changes(audit)]
        return "\n\n".join(blocks) + "\n"

    def ranked(self, leaderboard: Leaderboard, folder: Path) -> str:
        """The leaderboard in tables; its cells lead to the evidence in the audits' reports."""
        content = leaderboard_content(leaderboard, folder)
        blocks = [f"# Leaderboard: {safe(content.title)}"]
        for table in content.tables:
            blocks += [f"## {safe(table.title)}"]
            blocks += ["\n".join(f"- {safe(name)}: {safe(value)}" for name, value in table.facts)]
            blocks += _caveats(table.caveats)
            blocks += [_table(table.table), "\n".join(f"- {safe(note)}" for note in table.notes)]
            blocks += _sections(table.accuracy, folder)
        return "\n\n".join(block for block in [*blocks, safe(content.order), safe(content.note)] if block) + "\n"


def safe(text: str) -> str:
    """The text on one line, with everything escaped that Markdown or HTML would interpret."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", text))
    text = text.replace("|", "&#124;")  # parsers differ over a backslash before "|" in a table
    return text.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def code(text: str) -> str:
    """The text on one line as code, whatever characters it contains."""
    text = " ".join(text.split())
    return f"<code>{safe(text)}</code>" if re.search("[`|]", text) else f"`{text}`"


def _caveats(reasons: Caveats | None) -> list[str]:
    if reasons is None:
        return []
    return [f"**{reasons.heading}**", "\n".join(f"- {safe(sentence)}" for sentence in reasons.sentences)]


def _audit_changes(audit: AuditChanges) -> list[str]:
    """One later audit; unchanged questions are only counted."""
    unchanged = len(audit.unchanged.rows) if audit.unchanged else 0
    blocks = [f"## {safe(audit.title)}", *([f"**{safe(audit.warning)}**"] if audit.warning else [])]
    blocks += ["\n".join(f"- {safe(name)}: {safe(phrase)}" for name, phrase in audit.facts)]
    tables = (audit.accuracy, audit.changed, audit.sent, audit.epsilon)
    blocks += [_table(table) for table in tables if table is not None]
    return [*blocks, f"{unchanged} questions have the same verdict, and no change is shown."]


def _advice(content: ReportContent) -> list[str]:
    return [
        "\n".join(
            [
                f"- {verdict_words(step.verdict, step.grade)}: **{safe(step.title)}**",
                *(f"  - {safe(line)}" for line in step.lines),
                *([f"  - {code(step.command)}"] if step.command else []),
            ]
        )
        for step in content.advice
    ]


def _run_evidence(run: RunEvidence, folder: Path) -> list[str]:
    """A row for each question, and for each attack's headline figure; report.html has the rest."""
    headings = ("Question", "Verdict", "Effect and test")
    questions = tuple(
        (
            text_cell(question.title),
            verdict_cell(question.verdict, grade=question.grade),
            text_cell("; ".join(f"{name}: {phrase}" for name, phrase in question.facts)),
        )
        for question in run.questions
    )
    attacks = tuple(
        (text_cell(attack.title), text_cell(_headline(attack.tables)), count_cell(_controls(attack.tables)))
        for attack in run.attacks
    )
    pictures = [picture for attack in run.attacks for picture in attack.pictures]
    return [
        f"### {safe(run.title)}",
        _table(Table(headings, questions)),
        _table(Table(("Attack", "Its figure", "Controls"), attacks)),
        *_pictures(pictures, folder),
    ]


def _headline(tables: tuple[Table, ...]) -> str:
    """The headline metric and its figure, from the first table, that of all metrics."""
    return f"{tables[0].headings[1]}: {tables[0].rows[0][1].text}" if tables else "–"


def _controls(tables: tuple[Table, ...]) -> str:
    """The number of controls and upper bounds, from the first table."""
    return str(len(tables[0].rows) - 1) if tables else "–"


def _setup(content: ReportContent) -> list[str]:
    return [
        "## Set-up: data, configuration, environment",
        f"- **{safe(content.dataset)}**: {safe(content.about_dataset)}\n- **Limits**: {safe(content.limitations)}",
        *(["To run it again:", code(content.command)] if content.command else []),
        f"{content.timing}.",
        *_sections(content.images, Path()),
        "Configuration",
        _table(content.config),
        "Environment",
        _table(content.environment),
    ]


def _sections(sections: Iterable[Section], folder: Path) -> list[str]:
    blocks = []
    for section in sections:
        blocks += [f"### {safe(section.title)}"] if section.title else []
        blocks.append("\n".join(f"- {safe(line)}" for line in section.lines))
        blocks += [_table(section.table)] if section.table is not None else []
        blocks += _pictures(section.pictures, folder)
    return blocks


def _pictures(pictures: Iterable[Picture], folder: Path) -> list[str]:
    return [
        f"![{safe(picture.caption)}]({quote(picture.file)})"
        if (folder / picture.file).is_file()
        else f"The figure {code(picture.file)} is not in the folder of this run: {safe(picture.caption)}"
        for picture in pictures
    ]


def _table(table: Table) -> str:
    kinds = [cell.kind for cell in table.rows[0]] if table.rows else ["text"] * len(table.headings)
    lines = [
        "| " + " | ".join(safe(heading) for heading in table.headings) + " |",
        "|" + "|".join("---:" if kind == "count" else "---" for kind in kinds) + "|",
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows),
    ]
    return "\n".join([*([safe(table.note), ""] if table.note else []), *lines])


def _cell(cell: TableCell) -> str:
    text = code(cell.text) if cell.kind == "code" else safe(cell.text)
    text = f"[{text}]({cell.address})" if cell.address else text
    text = f"**{text}**" if cell.kind == "leak" and cell.grade != "trace" else text
    details = [cell.bar.words] if cell.bar else []
    details += cell.detail.splitlines()
    return f"{text} ({safe('; '.join(details))})" if details else text
