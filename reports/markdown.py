"""report.md: report.html in short, in Markdown tables, for a pull request or a terminal."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from fdgpriv.report import Report
from fdgpriv.results.comparison import Comparison
from fdgpriv.results.finding import Results

from ._changes import Against, changes
from ._story import Part, Story, story
from ._tables import Cell, Picture, Section, Table, count, text, verdict
from ._words import NOT_ATTACKED, OUTCOMES, VERDICTS

_SPECIAL = re.compile(r"([\\`*\[\]{}~#!$^]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+=:](?=\s|$|[-=:]))")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")  # at the start of a list item it would start a list in it


class Markdown(Report):
    """The report in short; text that others chose cannot start a tag, a link or a table cell."""

    filename: ClassVar[str] = "report.md"

    def render(self, results: Results, folder: Path) -> str:
        """The document; pictures are links relative to `folder`, where they are there."""
        told = story(results)
        blocks = [f"# Privacy audit: {safe(told.title)}", safe(told.subtitle)]
        if told.interrupted:
            blocks.append("**This audit was interrupted.** What follows is what had finished.")
        blocks += [f"**{VERDICTS[told.word]}.** {safe(told.sentence)}"]
        blocks += ["## What defenses cost, and what they leave"] if told.frontier else []
        blocks += [block for entry in told.frontier for block in _section(entry, folder)]
        blocks += ["## What leaks to whom"]
        blocks += [_table(told.scores)] if told.scores else []
        blocks += _or(told.matrix, folder, NOT_ATTACKED)
        if told.curves:
            blocks.append("## Leakage against the number of images behind the artifact")
            blocks.append("\n".join(f"- {safe(one.caption)} {safe(one.alt)}" for one in told.curves))
        blocks += ["## What to do", *_advice(told)] if told.advice else []
        blocks += ["## What left the client: the ledger", *_or(told.ledgers, folder, "Nothing crossed the wire.")]
        blocks += ["## Evidence, question by question"]
        blocks += [block for part in told.parts for block in _part(part, folder)] or [NOT_ATTACKED]
        none = "No claim of a paper was put to the test in this run."
        blocks += ["## The paper’s claims", *_or(told.claims, folder, none)]
        blocks += ["## Accuracy over targets and seeds"] if told.trainings else []
        blocks += [block for entry in told.trainings for block in _section(entry, folder)]
        blocks += ["## Utility", *_section(told.worth, folder)]
        blocks += [block for entry in told.accuracy for block in _section(entry, folder)]
        blocks += ["## Differential privacy: epsilon", _table(told.privacy)]
        blocks += ["## What was not measured", *_or(told.not_measured, folder, "The run names nothing.")]
        blocks += [_table(part.refusals) for part in told.parts if part.refusals.rows]
        blocks += ["## Pictures of the run", *_or(told.pictures, folder, "This audit left no further pictures.")]
        return "\n\n".join(block for block in [*blocks, *_setup(told)] if block) + "\n"

    def compared(self, comparison: Comparison) -> str:
        """The comparison in tables, for a comment on a pull request."""
        told = changes(comparison)
        blocks = [f"# Privacy audits compared: {safe(told.title)}", f"**{OUTCOMES[told.word]}.** {safe(told.sentence)}"]
        blocks += [safe(told.note), *(block for one in told.audits for block in _against(one))]
        return "\n\n".join(blocks) + "\n"


def safe(said: str) -> str:
    """`said` on one line with nothing in it that Markdown or HTML would act on."""
    said = " ".join(said.split())
    said = said.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    said = _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", said))
    said = said.replace("|", "&#124;")  # parsers differ over a backslash before "|" in a table
    return said.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def code(said: str) -> str:
    """`said` in the font of code, whatever it holds."""
    said = " ".join(said.split())
    return f"<code>{safe(said)}</code>" if re.search("[`|]", said) else f"`{said}`"


def _against(one: Against) -> list[str]:
    """One later audit; the questions without change are only counted."""
    same = len(one.unchanged.rows) if one.unchanged else 0
    blocks = [f"## {safe(one.title)}", "\n".join(f"- {safe(name)}: {safe(said)}" for name, said in one.facts)]
    blocks += [_table(table) for table in (one.accuracy, one.changed, one.sent, one.epsilon) if table is not None]
    return [*blocks, f"{same} questions have the same verdict, and no change is shown."]


def _advice(told: Story) -> list[str]:
    return [
        "\n".join([f"- **{safe(one.name)}** {safe(one.what)}.", *(f"  - {safe(said)}" for said in one.lines)])
        for one in told.advice
    ]


def _part(part: Part, folder: Path) -> list[str]:
    """One row for each question, and one for each attack's headline figure; report.html has the rest."""
    heads = ("Question", "Verdict", "Effect and test")
    rows = tuple(
        (
            text(one.title),
            verdict(one.word, label=one.label),
            text("; ".join(f"{name}: {said}" for name, said in one.facts)),
        )
        for one in part.questions
    )
    pictures = [picture for one in part.attacks for picture in one.pictures]
    body = tuple((text(one.title), text(_headline(one.tables)), count(_controls(one.tables))) for one in part.attacks)
    attacks = Table(("Attack", "Its figure", "Controls"), body)
    return [f"### {safe(part.title)}", _table(Table(heads, rows)), _table(attacks), *_pictures(pictures, folder)]


def _headline(tables: tuple[Table, ...]) -> str:
    """The headline metric and its figure, from the table of all metrics."""
    return f"{tables[0].heads[1]}: {tables[0].rows[0][1].text}" if tables else "–"


def _controls(tables: tuple[Table, ...]) -> str:
    return str(len(tables[0].rows) - 1) if tables else "–"


def _setup(told: Story) -> list[str]:
    return [
        "## Set-up: data, configuration, environment",
        f"- **{safe(told.dataset[0])}**: {safe(told.dataset[1])}\n- **Limits**: {safe(told.dataset[2])}",
        *(["To run it again:", code(told.command)] if told.command else []),
        f"{told.timing}.",
        *(block for entry in told.images for block in _section(entry, Path())),
        "Configuration",
        _table(told.config),
        "Environment",
        _table(told.environment),
    ]


def _or(entries: Iterable[Section], folder: Path, otherwise: str) -> list[str]:
    return [block for entry in entries for block in _section(entry, folder)] or [otherwise]


def _section(entry: Section, folder: Path) -> list[str]:
    blocks = [f"### {safe(entry.title)}"] if entry.title else []
    blocks.append("\n".join(f"- {safe(line)}" for line in entry.lines))
    blocks += [_table(entry.table)] if entry.table is not None else []
    return [*blocks, *_pictures(entry.pictures, folder)]


def _pictures(pictures: Iterable[Picture], folder: Path) -> list[str]:
    return [
        f"![{safe(entry.caption)}]({quote(entry.file)})"
        if (folder / entry.file).is_file()
        else f"The figure {code(entry.file)} is not in the folder of this run: {safe(entry.caption)}"
        for entry in pictures
    ]


def _table(data: Table) -> str:
    kinds = [cell.kind for cell in data.rows[0]] if data.rows else ["text"] * len(data.heads)
    lines = [
        "| " + " | ".join(safe(head) for head in data.heads) + " |",
        "|" + "|".join("---:" if kind == "count" else "---" for kind in kinds) + "|",
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in data.rows),
    ]
    return "\n".join([*([safe(data.note), ""] if data.note else []), *lines])


def _cell(cell: Cell) -> str:
    said = code(cell.text) if cell.kind == "code" else safe(cell.text)
    said = f"**{said}**" if cell.kind == "leak" else said
    return f"{said} ({safe('; '.join(cell.sub.splitlines()))})" if cell.sub else said
