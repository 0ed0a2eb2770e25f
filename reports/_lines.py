"""Line and point charts as places in percent: leakage over images, accuracy over rounds, privacy against utility."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Run
from fdgpriv.statistics.measured import Measured

from ._axis import Axis, Tick
from ._evidence import lower_leaks
from ._numbers import decimals, measured, number
from ._words import defense, metric, spoken

MOST_CONTROLS = 5  # lines that a reader can still tell apart


@dataclass(frozen=True)
class Point:
    """One point with its intervals, in percent of the plot from the left and from the top."""

    x: float
    y: float
    across: tuple[float, float] | None = None
    along: tuple[float, float] | None = None
    text: str = ""


@dataclass(frozen=True)
class Series:
    """A named run of points; `look` counts the looks of the style sheet from 0."""

    label: str
    look: int
    points: tuple[Point, ...]
    segments: tuple[tuple[Point, Point], ...] = ()


@dataclass(frozen=True)
class Lines:
    """A chart: series, ticks, and what the axes say."""

    title: str
    across: str
    along: str
    series: tuple[Series, ...]
    xticks: tuple[Tick, ...]
    yticks: tuple[Tick, ...]
    note: str = ""


def curve(finding: AttackFinding) -> Lines | None:
    """The headline metric against the number of images behind the artifact; None where it was not measured."""
    if not finding.curve:
        return None
    every = list(dict.fromkeys(name for point in finding.curve for name in point.controls))
    names = sorted(every, key=lambda name: (_strength(finding, name), name))[:MOST_CONTROLS]
    hidden = len(every) - len(names)
    note = (
        f"Drawn are the {len(names)} strongest of {len(every)} controls; the table has all of them." if hidden else ""
    )
    columns: list[tuple[str, list[Measured | None]]] = [
        (spoken(finding.attack), [point.value for point in finding.curve])
    ]
    columns += [(spoken(name), [point.controls.get(name) for point in finding.curve]) for name in names]
    known = [value for _, column in columns for value in column if value is not None and value.value is not None]
    axis = Axis.over(end for value in known for end in (value.value, *(value.ci95 or ())) if end is not None)
    places = [round(100 * (i + 0.5) / len(finding.curve), 3) for i in range(len(finding.curve))]
    labels = ["all" if point.images is None else str(point.images) for point in finding.curve]
    digits = decimals(known)
    series = tuple(
        _series(label, look, [_point(axis, x, value, digits) for x, value in zip(places, column, strict=True)])
        for look, (label, column) in enumerate(columns)
    )
    ticks = tuple(Tick(x, label) for x, label in zip(places, labels, strict=True))
    what = metric(finding.headline)
    return Lines(what, "images behind the artifact", what, series, ticks, axis.ticks(4), note)


def _strength(finding: AttackFinding, name: str) -> float:
    """The control's mean over the curve, signed so that the strongest sorts first."""
    values = [point.controls[name].value for point in finding.curve if name in point.controls]
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else float("inf")
    return mean if lower_leaks(finding) or not known else -mean


def accuracy(runs: Sequence[Run]) -> Lines | None:
    """Source and target accuracy over rounds, one pair of lines per run; None where no rounds were recorded."""
    told = [run for run in runs if run.utility and run.utility.rounds]
    if not told:
        return None
    columns = [
        (
            f"{name}, {defense(run.defense)}" if len(told) > 1 else name,
            [(r.round, getattr(r, field)) for r in run.utility.rounds],
        )
        for run in told
        if run.utility
        for name, field in (("target domain", "target_accuracy"), ("source domains", "source_accuracy"))
    ]
    rounds = sorted({at for _, column in columns for at, _ in column})
    across = Axis.over([float(at) for at in rounds])
    axis = Axis.over((value for _, column in columns for _, value in column if value is not None), 0.1)
    axis = Axis(max(axis.low, 0.0), min(axis.high, 1.0)) if axis.low < axis.high else axis
    series = tuple(
        _series(
            label,
            look,
            [
                Point(across.at(at), round(100 - axis.at(value), 3), text=f"round {at}: {number(100 * value, 1)}%")
                if value is not None
                else None
                for at, value in column
            ],
        )
        for look, (label, column) in enumerate(columns)
    )
    step = max(1, -(-len(rounds) // 8))
    ticks = tuple(Tick(across.at(at), str(at)) for at in rounds[::step])
    percent = tuple(Tick(tick.at, f"{number(100 * float(tick.text.replace('−', '-')), 0)}%") for tick in axis.ticks())
    return Lines("accuracy", "round", "accuracy", series, ticks, percent)


def points(title: str, across: str, rows: Sequence[tuple[str, Measured, Measured]]) -> Lines | None:
    """One point per named pair (x, y) with both intervals; None for fewer than two."""
    told = [(label, x, y) for label, x, y in rows if x.value is not None and y.value is not None]
    if len(told) < 2:
        return None
    wide = Axis.over((end for _, x, _ in told for end in (x.value, *(x.ci95 or ())) if end is not None), 0.12)
    tall = Axis.over((end for _, _, y in told for end in (y.value, *(y.ci95 or ())) if end is not None), 0.12)
    series = []
    for look, (label, x, y) in enumerate(told):
        assert x.value is not None
        point = _point(tall, wide.at(x.value), y, decimals([y]))
        assert point is not None
        ends = (wide.at(x.ci95[0]), wide.at(x.ci95[1])) if x.ci95 else None
        text = f"{label}: {measured(y)} at {measured(x)}"
        series.append(Series(label, look, (Point(point.x, point.y, ends, point.along, text),)))
    return Lines(title, across, title, tuple(series), wide.ticks(4), tall.ticks(4))


def _point(axis: Axis, x: float, figure: Measured | None, places: int) -> Point | None:
    if figure is None or figure.value is None:
        return None
    along = None
    if figure.ci95:
        along = (round(100 - axis.at(figure.ci95[0]), 3), round(100 - axis.at(figure.ci95[1]), 3))
    return Point(x, round(100 - axis.at(figure.value), 3), along=along, text=measured(figure, places))


def _series(label: str, look: int, places: Sequence[Point | None]) -> Series:
    segments = tuple((a, b) for a, b in pairwise(places) if a is not None and b is not None)
    return Series(label, look, tuple(point for point in places if point is not None), segments)
