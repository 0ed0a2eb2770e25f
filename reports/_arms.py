"""Arms of a comparison: one method under one defense, with all its runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.run import Run

from ._words import defense


@dataclass(frozen=True)
class Arm:
    """One method under one defense, with all its runs: its targets and seeds."""

    name: str
    method: str
    defense: str
    runs: tuple[Run, ...]


def arms(runs: Sequence[Run]) -> tuple[Arm, ...]:
    """The runs by method and defense, in the order in which they came."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.method, run.defense), []).append(run)
    defended = len({name for _, name in groups}) > 1
    many = len({method for method, _ in groups}) > 1

    def name(method: str, with_defense: str) -> str:
        told = defense(with_defense)
        return (f"{method}, {told}" if many else told) if defended else method

    return tuple(Arm(name(m, d), m, d, tuple(group)) for (m, d), group in groups.items())
