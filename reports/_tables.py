"""Tables of a report: their cells by kind, and the tables of the ledger, epsilon, claims and settings."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from fdgpriv.results.run import ArtifactRow, Claim, Privacy, Run
from fdgpriv.statistics.grades import Grade

from ._bars import LeadBar
from ._numbers import plain, rounded_bytes
from ._words import defense, guaranteed, joined, role, spoken, title, verdict_words


@dataclass(frozen=True)
class TableCell:
    """A cell of a table.

    Attributes:
        text: What it says.
        kind: ``text``, ``number`` (a figure with its interval), ``count`` (right-aligned), ``code``, or the word of a verdict
            (drawn as a chip on its colour).
        detail: Smaller text below, one line of it per line.
        grade: Of a leak, which says how deep its colour is.
        bar: The lead that the verdict rests on.
        anchor: Its own anchor on the page; empty without one.
        link: The anchor that it leads to; empty without one.
        address: Another document that it leads to, percent-encoded; empty without one.
    """

    text: str
    kind: str = "text"
    detail: str = ""
    grade: Grade | None = None
    bar: LeadBar | None = None
    anchor: str = ""
    link: str = ""
    address: str = ""


@dataclass(frozen=True)
class Table:
    """Headings and rows of equal length; `note` stands above it."""

    headings: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(f"want {len(self.headings)} cells, got {len(row)}")

    def word_count(self) -> int:
        """The number of words in the cells, without headings and note."""
        return sum(len(f"{cell.text} {cell.detail}".split()) for row in self.rows for cell in row)


@dataclass(frozen=True)
class Picture:
    """A file of the run and what it shows."""

    file: str
    caption: str


@dataclass(frozen=True)
class Section:
    """Lines, a table and pictures under a title, which may be empty."""

    title: str
    table: Table | None = None
    lines: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()


def text_cell(text: str, detail: str = "") -> TableCell:
    """A cell of words."""
    return TableCell(text, "text", detail)


def number_cell(figure: str, detail: str = "") -> TableCell:
    """A cell of a figure; a figure in words ("not available: ...") is set as words."""
    return TableCell(figure, "text" if figure.startswith("not available") else "number", detail)


def count_cell(number: str, detail: str = "") -> TableCell:
    """A cell with a single number, right-aligned."""
    return TableCell(number, "count", detail)


def code_cell(text: str) -> TableCell:
    """A cell that quotes the program."""
    return TableCell(text, "code")


def verdict_cell(verdict: str, detail: str = "", grade: Grade | None = None, bar: LeadBar | None = None) -> TableCell:
    """A verdict as a chip, a leak by its grade."""
    return TableCell(verdict_words(verdict, grade), verdict, detail, grade, bar)


def ledger(artifacts: Sequence[ArtifactRow]) -> Table:
    """What crossed the wire: kind, sender and receiver, size, count, and who can read it."""
    headings = (
        "Artifact",
        "Describes",
        "From → to",
        "Bytes per client and round",
        "Times",
        "Samples behind",
        "Visible to",
    )
    return Table(
        headings,
        tuple(
            (
                text_cell(spoken(row.kind), f"{row.shape}; {row.dtype}"),
                text_cell(row.level or "–"),
                text_cell(f"{row.sender} → {row.to}" + (f" via {row.via}" if row.via else ""), f"asked as {row.verb}"),
                count_cell(f"{row.per_client_per_round_bytes:,}", rounded_bytes(row.per_client_per_round_bytes)),
                count_cell(f"{row.times:,}"),
                count_cell("–" if row.samples_behind is None else f"{row.samples_behind:,}"),
                text_cell(joined([role(name) for name in row.visible_to]) or "nobody"),
            )
            for row in artifacts
        ),
    )


def privacy(runs: Sequence[Run]) -> Table:
    """Proved and measured epsilon, one row per defense; equal rows of several seeds and targets are merged."""
    rows: dict[tuple[str, str, str], tuple[TableCell, ...]] = {}
    for run in runs:
        report, ceiling = run.privacy, run.privacy.ceiling
        proved = "none" if report.epsilon_proved is None else f"({plain(report.epsilon_proved)}, {plain(report.delta)})"
        cells = (
            text_cell(f"{run.method}, {defense(run.defense)}"),
            number_cell(
                proved,
                ""
                if report.epsilon_proved is None
                else "; ".join(filter(None, guaranteed(report.unit, report.not_covered))),
            ),
            text_cell(
                _measured_bounds(report), "" if ceiling is None else f"at most {plain(ceiling)} could have been shown"
            ),
            verdict_cell(report.verdict),
            text_cell(report.statement),
        )
        rows.setdefault((run.method, run.defense, report.model_dump_json()), cells)
    headings = ("Method, defense", "Proved (ε, δ)", "Measured, at least", "Verdict", "Statement")
    return Table(headings, tuple(rows.values()))


def _measured_bounds(report: Privacy) -> str:
    """The measured lower bounds on epsilon, with the largest that one run could have shown if that differs from the rest."""
    bounds, ceiling = report.epsilon_measured, report.epsilon_measured.one_run_ceiling
    one_run = "one run"
    if ceiling not in (None, report.ceiling):
        one_run += f", where at most {plain(ceiling)} could have been shown"
    figures = (("Clopper-Pearson", bounds.clopper_pearson), ("GDP", bounds.gdp), (one_run, bounds.one_run))
    return ", ".join(f"{plain(value)} ({name})" for name, value in figures if value is not None) or "not measured"


def claims(entries: Sequence[Claim]) -> Table:
    """The claims of the paper with their verdicts; a statement of design has none."""
    headings = ("Claim", "The paper says", "Measured by", "Verdict", "Why, and the evidence")
    rows = (
        (
            code_cell(claim.id),
            text_cell(f"“{claim.quote}”"),
            text_cell(claim.measurement),
            verdict_cell(claim.verdict) if claim.verdict else text_cell("design"),
            text_cell(claim.reason, "\n".join(claim.evidence)),
        )
        for claim in entries
    )
    return Table(headings, tuple(rows))


def settings(values: Mapping[str, JsonValue]) -> Table:
    """Names and values as JSON."""
    rows = ((code_cell(name), code_cell(json.dumps(value, ensure_ascii=False))) for name, value in values.items())
    return Table(("Name", "Value"), tuple(rows))


def images(run: Run) -> Section | None:
    """How the images of the source domains are divided, in one line; None if the run does not record it."""
    counts = run.images
    if counts is None:
        return None
    by_domain = ", ".join(f"{name} {domain.train:,}" for name, domain in counts.domains.items())
    line = (
        f"Images of the source domains: {counts.train:,} train ({by_domain}), {counts.held_out:,} are held out for "
        "validation, "
    )
    if not counts.public + counts.shadow:
        return Section("", lines=(line + "none is withheld for attacks.",))
    line += f"{counts.public:,} are public, for adversaries to hold, {counts.shadow:,} are shadow clients'"
    return Section("", lines=(f"{line}, {counts.unused:,} are not used." if counts.unused else f"{line}.",))


def networks(config: Mapping[str, JsonValue]) -> tuple[Section, ...]:
    """One line per method: its network, the initial weights, and the networks of image metrics; empty if not recorded."""
    setups = config.get("setup")
    lines = tuple(
        f"Network of {method}: {setup['backbone']}; weights: {setup['weights']}."
        + _image_metrics(setup.get("metrics"), config)
        for method, setup in (setups.items() if isinstance(setups, Mapping) else ())
        if isinstance(setup, Mapping) and "weights" in setup
    )
    return (Section("", lines=lines),) if lines else ()


def _image_metrics(networks: JsonValue, config: Mapping[str, JsonValue]) -> str:
    """A sentence on the networks that compare reconstructed images; empty without attacks."""
    names = [str(name) for name in networks] if isinstance(networks, list) and config.get("attacks") else []
    return f" Images that attacks draw are compared by {joined(names)}." if names else ""


def pictures(run: Run) -> Section | None:
    """Pictures of the run that belong to no attack."""
    files = tuple(Picture(figure.file, figure.caption) for figure in run.figures)
    return Section("", pictures=files) if files else None


def grouped(runs: Sequence[Run], section_of: Callable[[Run], Section | None]) -> tuple[Section, ...]:
    """Merges runs with identical sections; the title names the runs unless all of them share it."""
    runs_by_section: dict[Section, list[str]] = {}
    for run in runs:
        if (section := section_of(run)) is not None:
            runs_by_section.setdefault(section, []).append(title(run))
    return tuple(
        Section("" if len(names) == len(runs) else "; ".join(names), section.table, section.lines, section.pictures)
        for section, names in runs_by_section.items()
    )
