"""The section on accuracies over targets and seeds: a row for each method and defense, its intervals over trainings."""

from collections.abc import Sequence

from fdgpriv.results.accuracy import RETURNED, RULES, Accuracy, accuracies, several_trainings
from fdgpriv.results.finding import Results
from fdgpriv.statistics.measured import Measured

from ._numbers import interval, share
from ._numbers import number as decimal
from ._sections import Named
from ._table import Cell, Table, count, number, text
from ._words import defense

_RULES = ("last round", "best source accuracy", "mean of the last five")


def over_trainings(results: Results) -> tuple[Named, ...]:
    """The tables, and what is missing from them; none for a single training."""
    if not several_trainings(results) or not (rows := accuracies(results)):
        return ()
    lines = [
        "Each mean is over the targets of a seed, then over the seeds that have every target. Square brackets are 95% t "
        "intervals over seeds, each of which is a training of its own. A target's column is the mean over its seeds."
    ]
    lines += [f"Missing for {_name(row)}: {'; '.join(row.missing)}." for row in rows if row.missing]
    heads = ("Method", "Seeds", "Target accuracy", *(f"Target {name}" for name in rows[0].by_target), "Source accuracy")
    first = Named("", Table(heads, tuple(_cells(row) for row in rows)), lines=tuple(lines))
    return (first, *_by_rule(rows))


def _by_rule(rows: Sequence[Accuracy]) -> tuple[Named, ...]:
    """Target accuracy by which round's model counts, with the difference from FedAvg; none where no round was evaluated."""
    if not any(row.by_rule for row in rows):
        return ()
    lines = [
        "Some methods return the last round's model, others one that they select. The other columns hold one rule for all "
        "methods: the model after the last round; that of the round with the best accuracy on the sources' held-out images "
        "(the earliest of several); the mean over the last five evaluated rounds. Methods compare within a column."
    ]
    bases = list(dict.fromkeys(row.base for row in rows if row.base))
    lines += [
        f"After each figure comes its difference from {base} by the same rule, in points: the mean over pairs of target and "
        "seed, with the 95% t interval over seeds."
        for base in bases
    ]
    heads = ("Method", "Target accuracy, returned", *(f"Target accuracy, {rule}" for rule in _RULES))
    body = tuple((_title(row), *(_cell(row, rule) for rule in (RETURNED, *RULES))) for row in rows)
    return (Named("By the round whose model counts", Table(heads, body), lines=tuple(lines)),)


def _cell(row: Accuracy, rule: str) -> Cell:
    figure = row.target if rule == RETURNED else row.by_rule.get(rule)
    return number(share(figure), _points(row.leads.get(rule), row.target.n or 0))


def _points(lead: Measured | None, seeds: int) -> str:
    if lead is None or lead.value is None:
        return ""
    sign = "+" if lead.value > 0 else ""
    ends = "" if lead.ci95 is None else f" {interval((100 * lead.ci95[0], 100 * lead.ci95[1]), 1)}"
    few = _of(lead.n or 0, seeds)
    return f"{sign}{decimal(100 * lead.value, 1)}{ends}" + (f", {few}" if few else "")


def _title(row: Accuracy) -> Cell:
    return text(f"{row.method}, {defense(row.defense)}", row.model)


def _name(row: Accuracy) -> str:
    return f"{row.method}, {defense(row.defense)}" + (f", {row.model}" if row.model else "")


def _cells(row: Accuracy) -> tuple[Cell, ...]:
    seeds = row.target.n or 0
    return (
        _title(row),
        count(str(seeds), f"{len(row.left_out)} left out" if row.left_out else ""),
        number(share(row.target), (row.target.reason or "") if row.target.value is not None else ""),
        *(number(share(figure), _of(figure.n or 0, seeds)) for figure in row.by_target.values()),
        number(share(row.source)),
    )


def _of(n: int, seeds: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}" if n not in (0, seeds) else ""
