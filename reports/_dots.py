"""The dot-and-interval chart of one attack: the attack, each control, chance, the bounds, all on one axis."""

from dataclasses import dataclass
from typing import Literal

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.measured import Measured

from ._axis import Axis, Tick
from ._evidence import controls, headline, lower_leaks
from ._numbers import decimals, measured
from ._words import metric, spoken

Kind = Literal["attack", "control", "chance", "positive", "bound"]

NOTES: dict[str, str] = {
    "attack": "the attack",
    "control": "without the artifact, or with someone else's",
    "chance": "guessing",
    "positive": "the same attack where it must succeed",
    "bound": "upper bound",
}


@dataclass(frozen=True)
class Mark:
    """One row: places in percent of the axis (None where there is no value), and the figure in words."""

    label: str
    kind: Kind
    at: float | None
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True)
class Dots:
    """The chart: rows from top to bottom, and the attack's own interval as a band behind all of them."""

    title: str
    closer: str
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    band: tuple[float, float] | None


def dots(finding: AttackFinding) -> Dots | None:
    """The chart of the headline metric; None where the attack has no figure for it."""
    figure = headline(finding)
    if figure is None:
        return None
    rows: list[tuple[str, Kind, Measured]] = [(spoken(finding.attack), "attack", figure)]
    rows += [(spoken(name), "control", value) for name, value in controls(finding)]
    if finding.chance is not None:
        rows.append(("chance", "chance", finding.chance))
    if finding.positive_control is not None:
        rows.append(("positive control", "positive", finding.positive_control.value))
    rows += [
        (spoken(name), "bound", table[finding.headline])
        for name, table in finding.upper_bounds.items()
        if finding.headline in table
    ]
    known = [value for _, _, value in rows if value.value is not None]
    axis = Axis.over(end for value in known for end in (value.value, *(value.ci95 or ())) if end is not None)
    places = decimals(known)
    return Dots(
        title=metric(finding.headline),
        closer="lower is closer to the truth" if lower_leaks(finding) else "higher is closer to the truth",
        marks=tuple(_mark(axis, places, *row) for row in rows),
        ticks=axis.ticks(),
        band=(axis.at(figure.ci95[0]), axis.at(figure.ci95[1])) if figure.ci95 else None,
    )


def _mark(axis: Axis, places: int, label: str, kind: Kind, figure: Measured) -> Mark:
    ends = figure.ci95 or (None, None)
    at, low, high = (None if value is None else axis.at(value) for value in (figure.value, *ends))
    return Mark(label, kind, at, low, high, measured(figure, places))
