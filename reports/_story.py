"""What a report tells, in the order in which it tells it; each format only sets it in type."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.finding import Results, Run, RunFigure

from . import _attack_tables, _tables
from ._accuracy import over_trainings
from ._cards import Card, Picture, card
from ._matrix import matrix
from ._numbers import plain
from ._sections import Named, accuracies, images, privacy_and_utility
from ._summary import Verdict, verdicts
from ._table import Table
from ._words import defense, joined, title, unique


@dataclass(frozen=True)
class Part:
    """One run's attacks; no table and no card where nothing was attacked."""

    title: str
    glances: tuple[Table, ...]
    cards: tuple[Card, ...]
    refusals: Table | None


@dataclass(frozen=True)
class Story:
    """Everything a report shows, already in words."""

    title: str
    subtitle: str
    interrupted: bool
    verdicts: tuple[Verdict, ...]
    ledgers: tuple[Named, ...]
    sight: tuple[Named, ...]
    matrix: Table | None
    parts: tuple[Part, ...]
    pictures: tuple[Named, ...]
    trainings: tuple[Named, ...]
    tradeoff: Named
    accuracy: tuple[Named, ...]
    privacy: Table
    claims: tuple[Named, ...]
    not_measured: tuple[Named, ...]
    dataset: tuple[str, str, str]
    images: tuple[Named, ...]
    config: Table
    environment: Table
    timing: str
    command: str


def story(results: Results) -> Story:
    """The results, told."""
    runs = results.runs
    methods, targets = unique([run.method for run in runs]), unique([run.target or "" for run in runs])
    aimed = f", target {joined(targets)}" if any(targets) else ""
    seeds = unique([str(run.seed) for run in runs])
    return Story(
        title=f"{joined(methods) or 'No run'} on {results.dataset.name}{aimed}",
        subtitle=f"fdgpriv {results.fdgpriv} · {joined(unique([defense(run.defense) for run in runs])) or 'nothing finished'}"
        f" · seed{'' if len(seeds) == 1 else 's'} {joined(seeds) or '–'}",
        interrupted=results.interrupted,
        verdicts=verdicts(results),
        ledgers=_same(runs, [_tables.ledger(run.artifacts) for run in runs]),
        sight=_same(runs, [_tables.sight(run) for run in runs]),
        matrix=matrix(runs),
        parts=tuple(_part(run) for run in runs) if any(run.attacks for run in runs) else (),
        pictures=_pictured(runs),
        trainings=over_trainings(results),
        tradeoff=privacy_and_utility(runs),
        accuracy=accuracies(runs),
        privacy=_tables.privacy(runs),
        claims=_same(runs, [_tables.claims(run.claims) for run in runs]),
        not_measured=_listed(runs, [run.not_measured for run in runs]),
        images=_listed(runs, [images(run) for run in runs]),
        dataset=(results.dataset.name, results.dataset.about, results.dataset.limits),
        config=_tables.settings(results.config),
        environment=_tables.settings(results.environment),
        timing=f"{plain(results.timing.total_s, ' s')} in all, {plain(results.timing.train_s, ' s')} training, "
        f"{plain(results.timing.attack_s, ' s')} attacking; peak memory {plain(results.timing.peak_rss_mb, ' MB')}",
        command=results.command or "",
    )


def _same(runs: Sequence[Run], tables: Sequence[Table]) -> tuple[Named, ...]:
    groups: dict[Table, list[str]] = {}
    for run, table in zip(runs, tables, strict=True):
        if table.rows:
            groups.setdefault(table, []).append(title(run))
    whole = len(groups) == 1 and len(next(iter(groups.values()))) == len(runs)
    return tuple(Named("" if whole else "; ".join(names), table) for table, names in groups.items())


def _pictured(runs: Sequence[Run]) -> tuple[Named, ...]:
    groups: dict[tuple[RunFigure, ...], list[str]] = {}
    for run in runs:
        if run.figures:
            groups.setdefault(run.figures, []).append(title(run))
    every = len(groups) == 1 < len(runs) and len(next(iter(groups.values()))) == len(runs)
    return tuple(
        Named("" if every else "; ".join(names), pictures=tuple(Picture(f.file, f.caption) for f in figures))
        for figures, names in groups.items()
    )


def _listed(runs: Sequence[Run], said: Sequence[tuple[str, ...]]) -> tuple[Named, ...]:
    """What is said of the runs, in lines, once for all runs of which the same is said."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for run, lines in zip(runs, said, strict=True):
        groups.setdefault(lines, []).append(title(run))
    whole = len(groups) == 1
    return tuple(Named("" if whole else "; ".join(names), lines=lines) for lines, names in groups.items() if lines)


def _part(run: Run) -> Part:
    refused = [a for a in run.attacks if a.verdict == a.verdict_domain == "not_applicable"]
    told = sorted((a for a in run.attacks if a not in refused), key=lambda a: not a.shared)
    groups = (
        ([a for a in told if a.shared], "On artifacts that crossed the wire:"),
        (
            [a for a in told if not a.shared],
            "On artifacts that did not: positive controls, and what decides a paper's claim.",
        ),
    )
    return Part(
        title=title(run),
        glances=tuple(_attack_tables.glance(group, note) for group, note in groups if group),
        cards=tuple(card(a, run.defense != "none") for a in told),
        refusals=_attack_tables.refusals(refused) if refused else None,
    )
