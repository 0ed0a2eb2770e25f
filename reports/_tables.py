"""The tables of the runs: ledger, who sees what, privacy against utility, epsilon, claims, settings."""

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from fdgpriv.results.finding import ArtifactRow, Claim, Run

from ._evidence import headline
from ._numbers import measured, plain, rounded_bytes, share
from ._pool import benchmark, of, pooled, rows
from ._table import Cell, Table, code, count, number, text, verdict
from ._words import ROLES, called, defense, joined, metric, role, spoken, unique
from ._words import sight as seeing


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


def sight(run: Run) -> Table:
    """Who can read which artifact, and whose attack on it leaks."""
    groups: dict[str, list[ArtifactRow]] = {}
    for row in run.artifacts:
        groups.setdefault(f"{row.kind}:{row.level}" if row.level else row.kind, []).append(row)
    known = [name.partition(" (")[0] for row in run.artifacts for name in row.visible_to]
    known += [a.threat.role for a in run.attacks if a.shared]
    roles = [name for name in ROLES if name in known] + unique([name for name in known if name not in ROLES])
    body = []
    for group in groups.values():
        level = f" ({group[0].level})" if group[0].level else ""
        body.append((text(spoken(group[0].kind) + level), *(_seen(run, group, name) for name in roles)))
    return Table(("Artifact", *(_upper(role(name)) for name in roles)), tuple(body))


def _seen(run: Run, group: Sequence[ArtifactRow], name: str) -> Cell:
    kinds = {name for row in group for name in called(row)}
    found = [a for a in run.attacks if a.shared and a.threat.role == name and a.artifact in kinds]
    words = {word for a in found for word in (a.verdict, a.verdict_domain)}
    ways = unique([way for row in group if (way := seeing(row, name))])
    way = "sees it" if "sees it" in ways else joined(ways)
    for word in ("leak", "inconclusive", "no_leak_found"):
        if word in words:
            return verdict(word, way or "if it obtains it")
    return text(f"{way}; not attacked" if way else "–")


def _upper(said: str) -> str:
    return said[:1].upper() + said[1:]


def tradeoff(runs: Sequence[Run]) -> Table:
    """Privacy against utility: one row per method, target and defense, its seeds pooled; utility alone if unattacked."""
    table = rows(runs)
    mark = benchmark(table)
    attacked = any(run.attacks for run in runs)
    several = len({(row.method, row.target) for row in table}) > 1
    head = f"{metric(mark.headline)} of {spoken(mark.attack)}" if mark else "Strongest attack"
    body = []
    for row in table:
        name = f"{row.method}, {row.target}: {defense(row.defense)}" if several else defense(row.defense)
        told = [run.utility for run in row.runs]
        figure = of(row, mark, headline) if mark else None
        found = [a for run in row.runs for a in run.attacks if a.shared and a.verdict != "not_applicable"]
        leaks = f"{sum(a.verdict == 'leak' for a in found)} of {len(found)}"
        plain_epsilon = plain(row.runs[0].privacy.epsilon_proved)
        body.append(
            (
                text(name),
                count(str(len(row.runs))),
                number(share(pooled([u.target_accuracy if u else None for u in told]))),
                number(share(pooled([u.source_accuracy if u else None for u in told]))),
                number(measured(pooled([u.calibration_error if u else None for u in told]))),
                *((number(measured(figure)), count(leaks)) if attacked else ()),
                count("none" if plain_epsilon == "–" else plain_epsilon),
            )
        )
    heads = (
        "Defense",
        "Seeds",
        "Target accuracy",
        "Source accuracy",
        "Calibration error",
        *((head, "Client leaks") if attacked else ()),
        "Proved ε",
    )
    return Table(heads, tuple(body))


def privacy(runs: Sequence[Run]) -> Table:
    """What is proved and what is measured about epsilon, by defense."""
    seen: dict[tuple[str, str, str], tuple[Cell, ...]] = {}
    for run in runs:
        told, bounds = run.privacy, run.privacy.epsilon_measured
        figures = (("Clopper-Pearson", bounds.clopper_pearson), ("GDP", bounds.gdp), ("one run", bounds.one_run))
        best = [f"{plain(value)} ({name})" for name, value in figures if value is not None]
        ceiling = f"at most {plain(told.ceiling)} could have been shown" if told.ceiling is not None else ""
        cells = (
            text(f"{run.method}, {defense(run.defense)}"),
            number("none" if told.epsilon_proved is None else f"({plain(told.epsilon_proved)}, {plain(told.delta)})"),
            text(", ".join(best) or "not measured", ceiling),
            verdict(told.verdict),
            text(told.statement),
        )
        seen.setdefault((run.method, run.defense, told.model_dump_json()), cells)
    return Table(
        ("Method, defense", "Proved (ε, δ)", "Measured, at least", "Verdict", "Statement"), tuple(seen.values())
    )


def claims(found: Sequence[Claim]) -> Table:
    """The claims ledger."""
    heads = ("Claim", "The paper says", "Measured by", "Verdict", "Why, and the evidence")
    body = (
        (
            code(claim.id),
            text(f"“{claim.quote}”"),
            text(claim.measurement),
            verdict(claim.verdict),
            text(claim.reason, "\n".join(claim.evidence)),
        )
        for claim in found
    )
    return Table(heads, tuple(body))


def settings(values: Mapping[str, JsonValue]) -> Table:
    """Names and values as JSON."""
    rows_ = ((code(name), code(json.dumps(value, ensure_ascii=False))) for name, value in values.items())
    return Table(("Name", "Value"), tuple(rows_))
