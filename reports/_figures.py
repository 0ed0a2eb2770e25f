"""The figures of a report, drawn with matplotlib as SVG that takes its colours from the page and carries its alt text."""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fdgpriv.utils.drawing import Axes, Figure, FigureCanvasSVG, MaxNLocator, default_style

INK, SOFT, FAINT = "#010101", "#020202", "#030303"
_SERIES = tuple(f"#0a0a0{i}" for i in range(6))
_VARIABLES = {INK: "ink", SOFT: "soft", FAINT: "faint"} | {colour: f"s{i}" for i, colour in enumerate(_SERIES)}
_MARKS, _DASHES = ("o", "s", "^", "D", "v", "P"), ("-", "--", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)))
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Series:
    """A named line; an entry is None where there is no value, and its interval None where there is none.

    `control` marks a line that is drawn dashed and grey, for comparison.
    """

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()
    control: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure, its caption, and what it shows in words; it is drawn where a page shows it."""

    draw: Callable[[], str]
    caption: str
    alt: str

    @property
    def svg(self) -> str:
        """Inline SVG."""
        return self.draw()


def lines(
    name: str, caption: str, alt: str, across: str, along: str, ticks: Sequence[str], series: Sequence[Series]
) -> Drawing:
    """Lines over places that are named below the axis, with 95% intervals as bands.

    Args:
        name: Of the figure; tells its parts from those of others on the page.
        caption, alt: What stands beneath it, and what it shows in words.
        across, along: What the axes say.
        ticks: The name of each place.
        series: One value for each place.
    """

    def draw(axes: Axes) -> None:
        looks = 0
        for one in series:
            colour = SOFT if one.control else _SERIES[looks % len(_SERIES)]
            dash = (0, (4, 3)) if one.control else _DASHES[looks % len(_DASHES)]
            mark = "" if one.control else _MARKS[looks % len(_MARKS)]
            looks += not one.control
            known = [(i, value) for i, value in enumerate(one.values) if value is not None]
            axes.plot(
                [i for i, _ in known],
                [value for _, value in known],
                color=colour,
                linestyle=dash,
                marker=mark,
                markersize=5,
                linewidth=1.4 if one.control else 2,
                label=short(one.name),
            )
            banded = [(i, *ends) for i, ends in enumerate(one.intervals) if ends and one.values[i] is not None]
            at, low, high = ([span[k] for span in banded] for k in range(3))
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_xticks(range(len(ticks)), [short(tick) for tick in ticks])
        axes.set_xlabel(short(across, 40))
        axes.set_ylabel(short(along, 40))
        axes.legend(loc="best")

    return Drawing(lambda: _svg(name, alt, draw), caption, alt)


@dataclass(frozen=True)
class Point:
    """A named point with its intervals; `other` is a second height, drawn hollow above or below it.

    Points of the same `look` have the same colour and mark in all drawings.
    """

    name: str
    look: int
    x: float
    y: float
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    other: float | None = None


def points(
    name: str, caption: str, alt: str, across: str, along: str, told: Sequence[Point], marked: Sequence[float] = ()
) -> Drawing:
    """Points of which lower and further right is better, with a line through those that no other beats.

    Args:
        name, caption, alt: As of `lines`.
        across, along: What the axes say.
        told: The points; the legend names them in this order.
        marked: Places across that are marked by a dashed line.
    """

    def draw(axes: Axes) -> None:
        best = sorted((one.x, one.y) for one in told if not any(_beats(rival, one) for rival in told))
        axes.plot(
            [x for x, _ in best], [y for _, y in best], color=SOFT, linewidth=1.2, drawstyle="steps-pre", zorder=1
        )
        for x in marked:
            axes.axvline(x, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
        for one in told:
            turn, i = divmod(one.look, len(_SERIES))
            colour, mark = _SERIES[i], _MARKS[(i + turn) % len(_MARKS)]
            wide, tall = _reach(one.x, one.x_interval), _reach(one.y, one.y_interval)
            if one.other is not None:
                axes.plot([one.x, one.x], [one.y, one.other], color=colour, linewidth=1, linestyle=(0, (1, 2)))
                axes.plot([one.x], [one.other], color=colour, marker=mark, markerfacecolor="none", linestyle="")
            axes.errorbar(
                [one.x],
                [one.y],
                xerr=wide,
                yerr=tall,
                color=colour,
                marker=mark,
                markersize=7,
                linestyle="",
                linewidth=1.1,
                label=short(one.name, 48),
                zorder=3,
            )
        axes.axhline(0.0, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlabel(short(across, 40))
        axes.set_ylabel(short(along, 40))
        axes.figure.legend(loc="outside lower left", handletextpad=0.2, labelspacing=0.2)

    return Drawing(lambda: _svg(name, alt, draw, 2.9 + 0.2 * len(told)), caption, alt)


def _beats(one: Point, other: Point) -> bool:
    return one.x >= other.x and one.y <= other.y and (one.x, one.y) != (other.x, other.y)


def _reach(value: float, ends: tuple[float, float] | None) -> list[list[float]] | None:
    """How far an interval reaches below and above."""
    return None if ends is None else [[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]]


def short(said: str, most: int = 24) -> str:
    """`said`, cut to `most` letters; a leading underscore would hide it from the legend."""
    said = said.lstrip("_") or "unnamed"
    return said if len(said) <= most else said[: most - 1] + "…"


def _svg(name: str, alt: str, draw: Callable[[Axes], None], height: float = 3.1) -> str:
    page = io.StringIO()
    with default_style({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that matplotlib's font lacks; the page's font has them
        figure = Figure(figsize=(4.6, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.grid(axis="y", color=FAINT, linewidth=1)
        axes.set_axisbelow(True)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        draw(axes)
        figure.savefig(page, format="svg", transparent=True, metadata={"Date": None})
    return _inline(page.getvalue(), name, alt)


def _inline(text: str, name: str, alt: str) -> str:
    """The drawing as a part of a page: no size of its own, no addresses, ids that no other drawing has."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style .*?</style>", "", text, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    body = text[text.index(">") + 1 :]
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    body = re.sub(r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", body).replace("xlink:href", "href")
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var(--{variable})")
    body = re.sub(r"font-family: [^;\"]*; ?", "", body)
    head = f'<svg class="drawing" viewBox="{box[1]}" role="img" aria-labelledby="{name}-alt">'
    return f'{head}<title id="{name}-alt">{escape(alt)}</title>{body}'.rstrip()
