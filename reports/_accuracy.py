"""The section on accuracies over targets and seeds: a row for each method and defense, its intervals over trainings."""

from fdgpriv.accuracy import Accuracy, accuracies, several_trainings
from fdgpriv.finding import Results

from ._numbers import share
from ._sections import Named
from ._table import Cell, Table, count, number, text
from ._words import defense


def over_trainings(results: Results) -> Named | None:
    """The table, and what is missing from it; None for a single training."""
    if not several_trainings(results) or not (rows := accuracies(results)):
        return None
    lines = [
        "Each mean is over the targets of a seed, then over the seeds that have every target. Square brackets are 95% t "
        "intervals over seeds, each of which is a training of its own. A target's column is the mean over its seeds."
    ]
    lines += [f"Missing for {_name(row)}: {'; '.join(row.missing)}." for row in rows if row.missing]
    heads = ("Method", "Seeds", "Target accuracy", *(f"Target {name}" for name in rows[0].by_target), "Source accuracy")
    return Named("", Table(heads, tuple(_cells(row) for row in rows)), lines=tuple(lines))


def _name(row: Accuracy) -> str:
    return f"{row.method}, {defense(row.defense)}" + (f", {row.model}" if row.model else "")


def _cells(row: Accuracy) -> tuple[Cell, ...]:
    seeds = row.target.n or 0
    return (
        text(f"{row.method}, {defense(row.defense)}", row.model),
        count(str(seeds), f"{len(row.left_out)} left out" if row.left_out else ""),
        number(share(row.target), (row.target.reason or "") if row.target.value is not None else ""),
        *(number(share(figure), _of(figure.n or 0, seeds)) for figure in row.by_target.values()),
        number(share(row.source)),
    )


def _of(n: int, seeds: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}" if n not in (0, seeds) else ""
