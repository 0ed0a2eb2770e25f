"""report.md: the same story as report.html, in Markdown tables, for a pull request or a terminal."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from fdgpriv.report import Report
from fdgpriv.results.finding import Results

from ._cards import Card, Picture
from ._sections import Named
from ._story import Part, Story, story
from ._table import Cell, Table
from ._words import NOT_ATTACKED, VERDICTS, defense

_SPECIAL = re.compile(r"([\\`*\[\]{}~#!$^]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+=:](?=\s|$|[-=:]))")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")  # at the start of a list item it would start a list in it


class Markdown(Report):
    """The whole report as Markdown; text that others chose cannot start a tag, a link or a table cell."""

    filename: ClassVar[str] = "report.md"

    def render(self, results: Results, folder: Path) -> str:
        """The document; pictures are links relative to `folder`, where they are there."""
        told = story(results)
        blocks = [f"# Privacy audit: {safe(told.title)}", safe(told.subtitle)]
        if told.interrupted:
            blocks.append("**This audit was interrupted.** What follows is what had finished.")
        blocks += [
            *_verdicts(told),
            "## The paper's claims",
            *_or(told.claims, folder, "No claim of a paper was put to the test in this run."),
        ]
        blocks += [*_wire(told), "## Attacks, controls and intervals"]
        blocks += [_table(told.matrix)] if told.matrix else []
        blocks += [block for part in told.parts for block in _part(part, folder)] or [NOT_ATTACKED]
        blocks += ["## Pictures", *(block for entry in told.pictures for block in _named(entry, folder))]
        blocks += ["## Accuracy over targets and seeds"] if told.trainings else []
        blocks += [block for entry in told.trainings for block in _named(entry, folder)]
        blocks += ["## Privacy against utility", *_named(told.tradeoff, folder)]
        blocks += ["## Accuracy over rounds", *(block for entry in told.accuracy for block in _named(entry, folder))]
        blocks += ["## Differential privacy", _table(told.privacy)]
        blocks += ["## What was not measured", *_or(told.not_measured, folder, "The run names nothing.")]
        blocks += [
            "## The data",
            _facts([(told.dataset[0], told.dataset[1]), ("Limits", told.dataset[2])]),
            *_setup(told),
        ]
        return "\n\n".join(block for block in blocks if block) + "\n"


def safe(text: str) -> str:
    """`text` on one line with nothing in it that Markdown or HTML would act on."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", text))
    text = text.replace("|", "&#124;")  # parsers differ over a backslash before "|" in a table
    return text.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def code(text: str) -> str:
    """`text` in the font of code, whatever it holds."""
    text = " ".join(text.split())
    return f"<code>{safe(text)}</code>" if re.search("[`|]", text) else f"`{text}`"


def _verdicts(told: Story) -> list[str]:
    blocks = ["## Verdict"]
    for entry in told.verdicts:
        blocks.append(f"### {VERDICTS[entry.word]}: {safe(entry.method)}, {safe(defense(entry.defense))}")
        blocks += [f"**{safe(entry.sentence)}**", _facts(entry.facts)]
    return blocks if told.verdicts else [*blocks, "No run finished, so there is nothing to judge."]


def _wire(told: Story) -> list[str]:
    here = Path()
    blocks = ["## What left the client", *_or(told.ledgers, here, "Nothing crossed the wire.")]
    return [*blocks, "## Who sees what", *_or(told.sight, here, "Nobody sees anything.")]


def _part(part: Part, folder: Path) -> list[str]:
    blocks = [f"### {safe(part.title)}", *(_table(data) for data in part.glances)]
    blocks += [block for card in part.cards for block in _card(card, folder)]
    blocks += [] if part.glances or part.refusals else [NOT_ATTACKED]
    return [*blocks, *(["#### Attacks that do not apply", _table(part.refusals)] if part.refusals else [])]


def _card(card: Card, folder: Path) -> list[str]:
    found = card.finding
    place = "" if found.shared else "Not on the wire. "
    lines = f"{place}Client: **{VERDICTS[found.verdict]}**. Domain: **{VERDICTS[found.verdict_domain]}**."
    blocks = [f"#### {safe(card.name)} {safe(card.how)}", lines, _facts([*card.facts, *card.more])]
    if card.metrics.rows:
        blocks.append(_table(card.metrics))
    if card.curve_table is not None:
        blocks += ["By the number of images behind the artifact:", _table(card.curve_table)]
    if card.rounds_table is not None:
        blocks += ["By the number of rounds read together:", _table(card.rounds_table)]
    return [*blocks, *_pictures(card.pictures, folder)]


def _setup(told: Story) -> list[str]:
    again = ["To run it again:", code(told.command)] if told.command else []
    return [
        "## Setup",
        *again,
        f"{told.timing}.",
        *(block for entry in told.images for block in _named(entry, Path())),
        "Configuration",
        _table(told.config),
        "Environment",
        _table(told.environment),
    ]


def _or(entries: Iterable[Named], folder: Path, otherwise: str) -> list[str]:
    return [block for entry in entries for block in _named(entry, folder)] or [otherwise]


def _named(entry: Named, folder: Path) -> list[str]:
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


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- **{safe(name)}**: {safe(said)}" for name, said in pairs)


def _table(data: Table) -> str:
    lines = [
        "| " + " | ".join(safe(head) for head in data.heads) + " |",
        "|"
        + "|".join("---:" if data.rows and data.rows[0][i].kind == "count" else "---" for i in range(len(data.heads)))
        + "|",
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in data.rows),
    ]
    note = [safe(data.note), ""] if data.note else []
    return "\n".join([*note, *lines])


def _cell(cell: Cell) -> str:
    said = code(cell.text) if cell.kind == "code" else safe(cell.text)
    said = f"**{said}**" if cell.kind == "leak" else said
    return f"{said} ({safe('; '.join(cell.sub.splitlines()))})" if cell.sub else said
