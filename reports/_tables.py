"""Tables: cells that know what they are, and the tables of ledger, epsilon, claims and settings."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from fdgpriv.results.run import ArtifactRow, Claim, Privacy, Run

from ._numbers import plain, rounded_bytes
from ._words import VERDICTS, defense, joined, role, spoken, title


@dataclass(frozen=True)
class Cell:
    """Text, its kind, and what stands below it, in lines of its own.

    The kind is ``text``, ``number`` (a figure with its interval), ``count`` (right-aligned), ``code``, or a verdict's
    word (drawn as a chip on its colour).
    """

    text: str
    kind: str = "text"
    sub: str = ""


@dataclass(frozen=True)
class Table:
    """Headings and rows of equal length; `note` stands above it."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.heads):
                raise ValueError(f"want {len(self.heads)} cells, got {len(row)}")


@dataclass(frozen=True)
class Picture:
    """A file of the run and what it shows."""

    file: str
    caption: str


@dataclass(frozen=True)
class Section:
    """A heading (or none) and what stands under it."""

    title: str
    table: Table | None = None
    lines: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()


def text(said: str, sub: str = "") -> Cell:
    """A cell of words."""
    return Cell(said, "text", sub)


def number(said: str, sub: str = "") -> Cell:
    """A cell of figures; words in it ("not available: ...") are set as words."""
    return Cell(said, "text" if said.startswith("not available") else "number", sub)


def count(said: str, sub: str = "") -> Cell:
    """A cell with one number, to be compared down its column."""
    return Cell(said, "count", sub)


def code(said: str) -> Cell:
    """A cell that quotes the program."""
    return Cell(said, "code")


def verdict(word: str, sub: str = "", label: str = "") -> Cell:
    """A verdict as a chip; `label` replaces its name, as where a leak has a grade."""
    return Cell(label or VERDICTS[word], word, sub)


def ledger(artifacts: Sequence[ArtifactRow]) -> Table:
    """What crossed the wire: kind, way, size, count, who can read it."""
    heads = (
        "Artifact",
        "Describes",
        "From → to",
        "Bytes per client and round",
        "Times",
        "Samples behind",
        "Visible to",
    )
    return Table(
        heads,
        tuple(
            (
                text(spoken(row.kind), f"{row.shape}; {row.dtype}"),
                text(row.level or "–"),
                text(f"{row.sender} → {row.to}" + (f" via {row.via}" if row.via else ""), f"asked as {row.verb}"),
                count(f"{row.per_client_per_round_bytes:,}", rounded_bytes(row.per_client_per_round_bytes)),
                count(f"{row.times:,}"),
                count("–" if row.samples_behind is None else f"{row.samples_behind:,}"),
                text(joined([role(name) for name in row.visible_to]) or "nobody"),
            )
            for row in artifacts
        ),
    )


def privacy(runs: Sequence[Run]) -> Table:
    """What is proved and what is measured about epsilon, by defense."""
    seen: dict[tuple[str, str, str], tuple[Cell, ...]] = {}
    for run in runs:
        told, most = run.privacy, run.privacy.ceiling
        cells = (
            text(f"{run.method}, {defense(run.defense)}"),
            number("none" if told.epsilon_proved is None else f"({plain(told.epsilon_proved)}, {plain(told.delta)})"),
            text(_bounds(told), "" if most is None else f"at most {plain(most)} could have been shown"),
            verdict(told.verdict),
            text(told.statement),
        )
        seen.setdefault((run.method, run.defense, told.model_dump_json()), cells)
    heads = ("Method, defense", "Proved (ε, δ)", "Measured, at least", "Verdict", "Statement")
    return Table(heads, tuple(seen.values()))


def _bounds(told: Privacy) -> str:
    """The measured bounds on epsilon; of one run with what it could have shown, where that is another number."""
    found, most = told.epsilon_measured, told.epsilon_measured.one_run_ceiling
    one_run = (
        "one run" if most in (None, told.ceiling) else f"one run, where at most {plain(most)} could have been shown"
    )
    figures = (("Clopper-Pearson", found.clopper_pearson), ("GDP", found.gdp), (one_run, found.one_run))
    return ", ".join(f"{plain(value)} ({name})" for name, value in figures if value is not None) or "not measured"


def claims(found: Sequence[Claim]) -> Table:
    """The claims ledger; a statement of design has no verdict."""
    heads = ("Claim", "The paper says", "Measured by", "Verdict", "Why, and the evidence")
    body = (
        (
            code(claim.id),
            text(f"“{claim.quote}”"),
            text(claim.measurement),
            verdict(claim.verdict) if claim.verdict else text("design"),
            text(claim.reason, "\n".join(claim.evidence)),
        )
        for claim in found
    )
    return Table(heads, tuple(body))


def settings(values: Mapping[str, JsonValue]) -> Table:
    """Names and values as JSON."""
    rows = ((code(name), code(json.dumps(value, ensure_ascii=False))) for name, value in values.items())
    return Table(("Name", "Value"), tuple(rows))


def images(run: Run) -> Section | None:
    """What the images of the source domains are used for, in one line; None where the run does not say."""
    used = run.images
    if used is None:
        return None
    each = ", ".join(f"{name} {of.train:,}" for name, of in used.domains.items())
    said = (
        f"Images of the source domains: {used.train:,} train ({each}), {used.held_out:,} are held out for validation, "
    )
    if not used.public + used.shadow:
        return Section("", lines=(said + "none is withheld for attacks.",))
    said += f"{used.public:,} are public, for adversaries to hold, {used.shadow:,} are shadow clients'"
    return Section("", lines=(f"{said}, {used.unused:,} are not used." if used.unused else f"{said}.",))


def networks(config: Mapping[str, JsonValue]) -> tuple[Section, ...]:
    """Which network each method trained, from which weights, and what compares images, in one line each; nothing without it."""
    setups = config.get("setup")
    told = setups.items() if isinstance(setups, Mapping) else ()
    lines = tuple(
        f"Network of {spec}: {one['backbone']}; weights: {one['weights']}." + _compared(one.get("metrics"), config)
        for spec, one in told
        if isinstance(one, Mapping) and "weights" in one
    )
    return (Section("", lines=lines),) if lines else ()


def _compared(networks: JsonValue, config: Mapping[str, JsonValue]) -> str:
    """What compares images that attacks draw, where there are attacks."""
    named = [str(name) for name in networks] if isinstance(networks, list) and config.get("attacks") else []
    return f" Images that attacks draw are compared by {joined(named)}." if named else ""


def pictures(run: Run) -> Section | None:
    """What the run itself drew."""
    found = tuple(Picture(figure.file, figure.caption) for figure in run.figures)
    return Section("", pictures=found) if found else None


def grouped(runs: Sequence[Run], make: Callable[[Run], Section | None]) -> tuple[Section, ...]:
    """One section for all runs of which the same is said, titled by the runs unless it is of all."""
    groups: dict[Section, list[str]] = {}
    for run in runs:
        if (section := make(run)) is not None:
            groups.setdefault(section, []).append(title(run))
    return tuple(
        Section("" if len(names) == len(runs) else "; ".join(names), one.table, one.lines, one.pictures)
        for one, names in groups.items()
    )
