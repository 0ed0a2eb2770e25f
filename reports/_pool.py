"""Seeds pooled: the runs that differ in their seed only, and one figure with its interval for all of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Run
from fdgpriv.statistics.measured import Measured

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Row:
    """Runs of one method, target and defense; one per seed."""

    method: str
    target: str | None
    defense: str
    runs: tuple[Run, ...]


def rows(runs: Sequence[Run]) -> tuple[Row, ...]:
    """`runs` grouped by all but the seed, in the order in which they came."""
    found: dict[tuple[str, str, str | None, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.method, run.dataset, run.target, run.defense), []).append(run)
    return tuple(Row(method, target, defense, tuple(group)) for (method, _, target, defense), group in found.items())


def pooled(figures: Sequence[Measured | None]) -> Measured | None:
    """The mean over seeds with its 95% t interval; a single seed's own figure; None where there is none.

    Example:
        >>> one, two = (Measured(value=v, direction="higher_better") for v in (1.0, 2.0))
        >>> [round(end, 2) for end in pooled([one, two]).ci95]
        [-4.85, 7.85]
    """
    known = [figure for figure in figures if figure is not None]
    values = [figure.value for figure in known if figure.value is not None]
    if len(known) <= 1 or len(values) <= 1:
        return next((figure for figure in known if figure.value is not None), known[0] if known else None)
    if len(values) < len(known):
        reason = f"null for {len(known) - len(values)} of {len(known)} seeds"
        return Measured(value=None, n=len(known), direction=known[0].direction, reason=reason)
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    half = float(stdtrit(len(values) - 1, 0.975)) * spread
    return Measured(value=mean, ci95=(mean - half, mean + half), n=len(values), direction=known[0].direction)


def key(finding: AttackFinding) -> Key:
    """What makes two findings of two runs the same question."""
    return finding.attack, finding.artifact, finding.threat.role, finding.threat.auxiliary


def benchmark(table: Sequence[Row]) -> AttackFinding | None:
    """The strongest attack of the first undefended row on what is shared, by which all rows are compared."""
    first = next((row for row in table if row.defense == "none"), table[0] if table else None)
    if first is None:
        return None
    found = [a for a in first.runs[0].attacks if a.shared and _valued(a)]
    return min(found, key=strength) if found else None


def strength(finding: AttackFinding) -> tuple[int, float, float, Key]:
    """Sorts the strongest first: leaks of a client, of a domain, then by leakage and by p."""
    rank = 0 if finding.verdict == "leak" else 1 if finding.verdict_domain == "leak" else 2
    value = finding.leakage.value if finding.leakage.value is not None else -math.inf
    return rank, -value, finding.leakage.p if finding.leakage.p is not None else 1.0, key(finding)


def of(row: Row, wanted: AttackFinding, figure: Callable[[AttackFinding], Measured | None]) -> Measured | None:
    """`figure` of the same question in this row, pooled over its seeds."""
    return pooled([figure(a) for run in row.runs for a in run.attacks if key(a) == key(wanted)])


def _valued(finding: AttackFinding) -> bool:
    figure = finding.metrics.get(finding.headline)
    return figure is not None and figure.value is not None and finding.verdict != "not_applicable"
