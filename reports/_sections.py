"""Two sections of a report that compare runs: privacy against utility, and accuracy over rounds."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.finding import Run

from ._cards import Picture
from ._evidence import headline
from ._lines import Lines, accuracy, points
from ._numbers import measured, share
from ._pool import benchmark, of, pooled, rows
from ._table import Table
from ._tables import tradeoff
from ._words import artifact, defense, metric, role, spoken


@dataclass(frozen=True)
class Named:
    """A heading and what stands under it."""

    title: str
    table: Table | None = None
    chart: Lines | None = None
    lines: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()


def privacy_and_utility(runs: Sequence[Run]) -> Named:
    """One point and one row per defense, compared by the attack that is strongest without any."""
    table = rows(runs)
    mark = benchmark(table)
    lines = [] if any(run.attacks for run in runs) else ["Nothing was attacked: the table has accuracies alone."]
    if {row.defense for row in table} <= {"none"}:
        lines.append(
            "Only the undefended method was run, so this report says nothing about what protection would cost."
        )
    if mark is None:
        return Named("", tradeoff(runs), None, tuple(lines))
    lines.append(
        f"Rows are compared by the strongest attack on the undefended method: {spoken(mark.attack)} by "
        f"{role(mark.threat.role)} on {artifact(mark)}, in {metric(mark.headline)}. "
        "Several seeds are pooled: mean and 95% t interval."
    )
    told = []
    for row in table:
        utility = pooled([run.utility.target_accuracy if run.utility else None for run in row.runs])
        figure = of(row, mark, headline)
        if utility is not None and figure is not None:
            name = (
                defense(row.defense) if len({r.method for r in table}) == 1 else f"{row.method}, {defense(row.defense)}"
            )
            told.append((f"{name}, {row.target}" if len({r.target for r in table}) > 1 else name, utility, figure))
    chart = points(f"{metric(mark.headline)} of {spoken(mark.attack)}", "target accuracy", told)
    return Named("", tradeoff(runs), chart, tuple(lines))


def images(run: Run) -> tuple[str, ...]:
    """What the images of the source domains are used for, in one line; none where the run does not say."""
    if run.images is None:
        return ()
    used = run.images
    each = ", ".join(f"{name} {count.train:,}" for name, count in used.domains.items())
    said = (
        f"Images of the source domains: {used.train:,} train ({each}), {used.held_out:,} are held out for validation, "
    )
    if not used.public + used.shadow:
        return (said + "none is withheld for attacks.",)
    return (said + f"{used.public:,} are public, for adversaries to hold, {used.shadow:,} are shadow clients'.",)


def accuracies(runs: Sequence[Run]) -> tuple[Named, ...]:
    """One chart per method, target and seed, with all its defenses; what diverged is said beneath."""
    groups: dict[tuple[str, str | None, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.method, run.target, run.seed), []).append(run)
    found = []
    for (method, target, seed), group in groups.items():
        lines = [
            f"{defense(run.defense)}: source {share(run.utility.source_accuracy)}, "
            f"target {share(run.utility.target_accuracy)}, calibration error {measured(run.utility.calibration_error)}"
            for run in group
            if run.utility
        ]
        lines += [
            f"{defense(run.defense)}, each client with its own model: source {share(run.utility.personal.source_accuracy)}, "
            f"target {share(run.utility.personal.target_accuracy)} (mean of {len(run.utility.personal.clients)} models)"
            for run in group
            if run.utility and run.utility.personal
        ]
        lines += [
            f"{defense(run.defense)}, round {entry.round}: {entry.reason}"
            for run in group
            if run.utility
            for entry in run.utility.rounds
            if entry.reason
        ]
        name = f"{method}, target {target}, seed {seed}" if len(groups) > 1 else ""
        found.append(Named(name, chart=accuracy(group), lines=tuple(lines)))
    return tuple(found)
