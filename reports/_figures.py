"""The figures of a report, drawn with matplotlib as SVG that takes its colours from the page and contains its alt text."""

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
_MARKERS, _DASHES = ("o", "s", "^", "D", "v", "P"), ("-", "--", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)))
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
    """A named line: its values and 95% intervals, each None if missing; a `control` is dashed and grey."""

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()
    control: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure with its caption and a text alternative; it is drawn when a page includes it."""

    draw: Callable[[], str]
    caption: str
    alt: str

    @property
    def svg(self) -> str:
        """Inline SVG."""
        return self.draw()


def line_chart(
    name: str, caption: str, alt: str, x_label: str, y_label: str, ticks: Sequence[str], series: Sequence[Series]
) -> Drawing:
    """Lines over named positions, with 95% intervals as bands.

    Args:
        name: Prefix of the ids in the SVG, unique on the page.
        caption, alt: The caption and the text alternative.
        x_label, y_label: Labels of the axes.
        ticks: The name of each position.
        series: The lines, with one value for each position.
    """

    def draw(axes: Axes) -> None:
        styles = 0
        for line in series:
            colour = SOFT if line.control else _SERIES[styles % len(_SERIES)]
            dash = (0, (4, 3)) if line.control else _DASHES[styles % len(_DASHES)]
            marker = "" if line.control else _MARKERS[styles % len(_MARKERS)]
            styles += not line.control
            present = [(i, value) for i, value in enumerate(line.values) if value is not None]
            axes.plot(
                [i for i, _ in present],
                [value for _, value in present],
                color=colour,
                linestyle=dash,
                marker=marker,
                markersize=5,
                linewidth=1.4 if line.control else 2,
                label=short(line.name),
            )
            bands = [(i, *ends) for i, ends in enumerate(line.intervals) if ends and line.values[i] is not None]
            positions, low, high = ([band[k] for band in bands] for k in range(3))
            axes.fill_between(positions, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_xticks(range(len(ticks)), [short(tick) for tick in ticks])
        axes.set_xlabel(short(x_label, 40))
        axes.set_ylabel(short(y_label, 40))
        axes.legend(loc="best")

    return Drawing(lambda: _svg(name, alt, draw), caption, alt)


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
        name, caption, alt: As for `line_chart`.
        x_label, y_label: Labels of the axes.
        scatter: The points, in the order of the legend.
        x_lines: Positions of dashed vertical lines.
    """

    def draw(axes: Axes) -> None:
        frontier = sorted((p.x, p.y) for p in scatter if not any(_dominates(other, p) for other in scatter))
        axes.plot(
            [x for x, _ in frontier],
            [y for _, y in frontier],
            color=SOFT,
            linewidth=1.2,
            drawstyle="steps-pre",
            zorder=1,
        )
        for x in x_lines:
            axes.axvline(x, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
        for point in scatter:
            turn, i = divmod(point.style, len(_SERIES))
            colour, marker = _SERIES[i], _MARKERS[(i + turn) % len(_MARKERS)]
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
        axes.axhline(0.0, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlabel(short(x_label, 40))
        axes.set_ylabel(short(y_label, 40))
        axes.figure.legend(loc="outside lower left", handletextpad=0.2, labelspacing=0.2)

    return Drawing(lambda: _svg(name, alt, draw, 2.9 + 0.2 * len(scatter)), caption, alt)


def _dominates(point: Point, other: Point) -> bool:
    return point.x >= other.x and point.y <= other.y and (point.x, point.y) != (other.x, other.y)


def _error_bar(value: float, ends: tuple[float, float] | None) -> list[list[float]] | None:
    """The distances [[below], [above]] from the value to the ends of its interval."""
    return None if ends is None else [[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]]


def short(text: str, longest: int = 24) -> str:
    """The text, cut to `longest` letters, without leading underscores, which would hide it from the legend."""
    text = text.lstrip("_") or "unnamed"
    return text if len(text) <= longest else text[: longest - 1] + "…"


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
