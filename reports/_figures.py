"""Drawings of a report by matplotlib: for a page, SVG that takes its colours from it, with alt text; for a paper, figures."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

from fdgpriv.utils.drawing import Axes, Figure, FigureCanvasSVG, MaxNLocator, default_style
from fdgpriv.utils.warnings_filter import warnings_ignored

_MARKERS, _DASHES = ("o", "s", "^", "D", "v", "P"), ("-", "--", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)))
_WIDTH, _HEIGHT = 4.6, 3.1  # inches
_PANELS = 3  # in one row of a figure for a paper


@dataclass(frozen=True)
class Palette:
    """Colours: of text, of secondary lines, of the grid, and of the series in order."""

    ink: str
    soft: str
    faint: str
    series: tuple[str, ...]

    def style(self) -> dict[Any, Any]:
        """Settings of matplotlib."""
        return {
            "svg.fonttype": "none",
            "text.parse_math": False,
            "font.size": 12,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": self.soft,
            "axes.labelcolor": self.ink,
            "xtick.color": self.soft,
            "ytick.color": self.soft,
            "text.color": self.ink,
            "legend.frameon": False,
            "legend.fontsize": 11,
            "axes.unicode_minus": True,
        }


_PAGE = Palette(
    "#010101", "#020202", "#030303", tuple(f"#0a0a0{i}" for i in range(6))
)  # stand for the page's variables
PAPER = Palette("#000000", "#595959", "#d9d9d9", ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#56b4e9"))
_VARIABLES = dict(zip((_PAGE.ink, _PAGE.soft, _PAGE.faint), ("ink", "soft", "faint"), strict=True)) | {
    colour: f"s{i}" for i, colour in enumerate(_PAGE.series)
}
Plot: TypeAlias = Callable[[Axes, Palette], None]


@dataclass(frozen=True)
class Series:
    """A named line: its values and 95% intervals, each None if missing; a `control` is dashed and grey."""

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()
    control: bool = False


@dataclass(frozen=True)
class Drawing:
    """A chart, which is drawn when a page or a paper includes it.

    Attributes:
        name: Prefix of the ids in its SVG, unique on the page.
        caption: Its caption.
        alt: Its text alternative.
        plot: Draws it into axes.
        height: In inches.
        title: What it is about in a few words; empty where the labels of its axes say that.
    """

    name: str
    caption: str
    alt: str
    plot: Plot
    height: float = _HEIGHT
    title: str = ""

    @property
    def svg(self) -> str:
        """Inline SVG."""
        return _svg(self.name, self.alt, self.plot, self.height)


def paper_figure(drawings: Sequence[Drawing]) -> Figure:
    """The drawings, of at least one, as panels of one figure in print colours, three in a row."""
    columns = min(_PANELS, len(drawings))
    rows = -(-len(drawings) // columns)
    with default_style(PAPER.style()), warnings_ignored(UserWarning):  # glyphs that matplotlib's font lacks
        height = rows * max(drawing.height for drawing in drawings)
        figure = Figure(figsize=(_WIDTH * columns, height), layout="constrained")
        panels = figure.subfigures(rows, columns, squeeze=False).ravel()
        for drawing, panel in zip(drawings, panels, strict=False):
            _plotted(panel, drawing.plot, PAPER).set_title(short(drawing.title, 60) if drawing.title else "")
    return figure


def line_chart(
    name: str,
    caption: str,
    alt: str,
    x_label: str,
    y_label: str,
    ticks: Sequence[str],
    series: Sequence[Series],
    title: str = "",
) -> Drawing:
    """Lines over named positions, with 95% intervals as bands.

    Args:
        name, caption, alt, title: As of a `Drawing`.
        x_label, y_label: Labels of the axes.
        ticks: The name of each position.
        series: The lines, with one value for each position.
    """

    def plot(axes: Axes, palette: Palette) -> None:
        _draw_lines(axes, palette, range(len(ticks)), series)
        axes.set_xticks(range(len(ticks)), [short(tick) for tick in ticks])
        axes.set_xlabel(short(x_label, 40))
        axes.set_ylabel(short(y_label, 40))
        axes.legend(loc="best")

    return Drawing(name, caption, alt, plot, title=title)


def _draw_lines(
    axes: Axes, palette: Palette, positions: Sequence[float], series: Sequence[Series], marked: bool = True
) -> None:
    """Draws lines with their intervals as bands; controls are dashed and grey."""
    styles = 0
    for line in series:
        colour = palette.soft if line.control else palette.series[styles % len(palette.series)]
        dash = (0, (4, 3)) if line.control else _DASHES[styles % len(_DASHES)]
        marker = _MARKERS[styles % len(_MARKERS)] if marked and not line.control else ""
        styles += not line.control
        present = [
            (position, value) for position, value in zip(positions, line.values, strict=True) if value is not None
        ]
        axes.plot(
            [position for position, _ in present],
            [value for _, value in present],
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=5,
            linewidth=1.4 if line.control else 2,
            label=short(line.name, 24 if marked else 48),
        )
        bands = [(positions[i], *ends) for i, ends in enumerate(line.intervals) if ends and line.values[i] is not None]
        places, low, high = ([band[k] for band in bands] for k in range(3))
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


def rate_chart(
    name: str, caption: str, alt: str, x_label: str, y_label: str, rates: Sequence[float], series: Sequence[Series]
) -> Drawing:
    """Lines over rates in (0, 1] on two logarithmic axes, with the diagonal, which is guessing.

    Args:
        name, caption, alt: As of a `Drawing`.
        x_label, y_label: Labels of the axes.
        rates: The position of each value, increasing.
        series: The lines, with one value in [0, 1] for each rate.
    """

    def plot(axes: Axes, palette: Palette) -> None:
        ends = (rates[0], 1.0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.plot(ends, ends, color=palette.soft, linewidth=1, linestyle=(0, (1, 2)), label="guessing")
        _draw_lines(axes, palette, rates, series, marked=False)
        axes.set_xlim(*ends)
        axes.set_ylim(*ends)
        axes.set_xlabel(short(x_label, 40))
        axes.set_ylabel(short(y_label, 40))
        axes.figure.legend(loc="outside lower left", handletextpad=0.4, labelspacing=0.2)

    return Drawing(name, caption, alt, plot, _HEIGHT + 0.2 * (len(series) + 1))


@dataclass(frozen=True)
class Point:
    """A named point with its intervals.

    Attributes:
        name: Its entry in the legend.
        style: Points of the same style have the same colour and marker in all drawings.
        x, y: Its position.
        x_interval, y_interval: 95% intervals, drawn as bars.
        second_y: Another value at the same x, drawn as a hollow marker; None without one.
    """

    name: str
    style: int
    x: float
    y: float
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    second_y: float | None = None


def scatter_chart(
    name: str,
    caption: str,
    alt: str,
    x_label: str,
    y_label: str,
    scatter: Sequence[Point],
    x_lines: Sequence[float] = (),
) -> Drawing:
    """Points of which lower and further right is better, with a line through those that no other dominates.

    Args:
        name, caption, alt: As of a `Drawing`.
        x_label, y_label: Labels of the axes.
        scatter: The points, in the order of the legend.
        x_lines: Positions of dashed vertical lines.
    """

    def plot(axes: Axes, palette: Palette) -> None:
        frontier = sorted((p.x, p.y) for p in scatter if not any(_dominates(other, p) for other in scatter))
        axes.plot(
            [x for x, _ in frontier],
            [y for _, y in frontier],
            color=palette.soft,
            linewidth=1.2,
            drawstyle="steps-pre",
            zorder=1,
        )
        for x in x_lines:
            axes.axvline(x, color=palette.soft, linewidth=1, linestyle=(0, (4, 3)))
        for point in scatter:
            turn, i = divmod(point.style, len(palette.series))
            colour, marker = palette.series[i], _MARKERS[(i + turn) % len(_MARKERS)]
            x_error, y_error = _error_bar(point.x, point.x_interval), _error_bar(point.y, point.y_interval)
            if point.second_y is not None:
                ends = [point.y, point.second_y]
                axes.plot([point.x, point.x], ends, color=colour, linewidth=1, linestyle=(0, (1, 2)))
                axes.plot([point.x], ends[1:], color=colour, marker=marker, markerfacecolor="none", linestyle="")
            axes.errorbar(
                [point.x],
                [point.y],
                xerr=x_error,
                yerr=y_error,
                color=colour,
                marker=marker,
                markersize=7,
                linestyle="",
                linewidth=1.1,
                label=short(point.name, 48),
                zorder=3,
            )
        axes.axhline(0.0, color=palette.soft, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlabel(short(x_label, 40))
        axes.set_ylabel(short(y_label, 40))
        axes.figure.legend(loc="outside lower left", handletextpad=0.2, labelspacing=0.2)

    return Drawing(name, caption, alt, plot, 2.9 + 0.2 * len(scatter))


def _dominates(point: Point, other: Point) -> bool:
    return point.x >= other.x and point.y <= other.y and (point.x, point.y) != (other.x, other.y)


def _error_bar(value: float, ends: tuple[float, float] | None) -> list[list[float]] | None:
    """The distances [[below], [above]] from the value to the ends of its interval."""
    return None if ends is None else [[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]]


def short(text: str, longest: int = 24) -> str:
    """The text, cut to `longest` letters, without leading underscores, which would hide it from the legend."""
    text = text.lstrip("_") or "unnamed"
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _svg(name: str, alt: str, plot: Plot, height: float) -> str:
    page = io.StringIO()
    with default_style({**_PAGE.style(), "svg.hashsalt": name}), warnings_ignored(UserWarning):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        _plotted(figure, plot, _PAGE)
        figure.savefig(page, format="svg", transparent=True, metadata={"Date": None})
    return _inline(page.getvalue(), name, alt)


def _plotted(figure: Any, plot: Plot, palette: Palette) -> Axes:
    """New axes of a figure, or of a part of one, with the plot on a grid."""
    axes: Axes = figure.add_subplot()
    axes.grid(axis="y", color=palette.faint, linewidth=1)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    plot(axes, palette)
    return axes


def _inline(text: str, name: str, alt: str) -> str:
    """The drawing as part of a page: without a fixed size or addresses, its ids prefixed with its name."""
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
